/** Labels of one person: a bar with keys on the pages of episodes and groups, a queue, and what the labels say. */

import { block } from "./blocks";
import type { Cell, Column } from "./data";
import { h, replace } from "./dom";
import { number } from "./format";
import { episodeAddress, type Place } from "./state";

/** The scores of the keys 1 to 5. */
const SCORES = [0, 0.25, 0.5, 0.75, 1];
const LONGEST_NOTE = 10_000;

export const KEYS = [
  ["1 – 5", "score the episode, from 0 to 1"], ["c", "write a note"], ["b", "best of its group"],
  ["q", "next episode of the queue"], ["u", "undo the last label"],
];

interface Current { episode?: string; score: number | null; selection: string | null; note: string; best: boolean }
interface Drawn { episode: string | null; draw: string; selection: string; probability: number | null }
interface Said {
  by: string;
  random_share: number;
  labels: {
    by: string; env: string; labels: number; left_out: { [how: string]: number }; effective: number; mean: number | null;
    interval: [number, number] | null; method: string; agreement: { accuracy: number | null; tau_b: number | null } | null;
  }[];
  disagreements: { episode: string; reward: number; score: number }[];
}

export class Labels {
  private current = "";
  private drawn: Drawn | null = null;
  private turn = 0;
  private skipped: string[] = [];
  private status = h("span", { role: "status" });
  private note = h("textarea", { rows: 3, maxlength: LONGEST_NOTE, "aria-label": "Note" });
  private form = h("form", { hidden: true, submit: (event: SubmitEvent) => { event.preventDefault(); this.saveNote(); } },
    this.note, h("button", {}, "Save (Ctrl+Enter)"));
  readonly bar = h("section", { class: "labels", "aria-label": "Labels", hidden: true });

  constructor(private token: string) {
    const button = (key: string, text: string): HTMLElement =>
      h("button", { type: "button", click: () => this.key(key), mousedown: (event: Event) => event.preventDefault(), "aria-keyshortcuts": key }, h("kbd", {}, key), ` ${text}`);
    replace(this.bar, this.form,
      ...SCORES.map((score, place) => button(String(place + 1), String(score))),
      button("c", "note"), button("b", "best of group"), button("q", "next"), button("u", "undo"), this.status);
    this.note.addEventListener("keydown", (event: KeyboardEvent) => {
      if (event.key === "Escape") this.closeNote();
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.saveNote();
      else return;
      event.preventDefault();
    });
  }

  /** Shows the bar where there is an episode to label. */
  show(place: Place): void {
    this.current = place.page === "episode" ? place.id : place.page === "group" ? place.member : "";
    this.bar.hidden = !this.current;
    this.closeNote();
    if (this.current) void this.tell(async () => this.words(await this.ask<Current>(encodeURIComponent(this.current))));
  }

  /** Does what a key asks for; whether it asks for anything. */
  key(key: string): boolean {
    const score = SCORES[Number(key) - 1];
    if (key === "q") void this.tell(() => this.next());
    else if (key === "u") void this.tell(() => this.undo());
    else if (!this.episode()) return false;
    else if (score !== undefined) void this.label({ score });
    else if (key === "b") void this.label({ best: true });
    else if (key === "c") this.openNote();
    else return false;
    return true;
  }

  /** The page of what the labels say. */
  async page(): Promise<HTMLElement> {
    const said = await this.ask<Said>("");
    const share = `${number(100 * said.random_share)} %`;
    const columns: Column[] = [
      ["by", "person", "text"], ["env", "environment", "text"], ["labels", "n", "number"], ["effective", "effective n", "number"],
      ["left_out", "left out", "text"], ["mean", "mean score", "text"], ["accuracy", "pairs ordered alike", "share"],
      ["tau_b", "tau-b", "number"],
    ].map(([key, label, kind]) => ({ key, label, kind, help: "" }) as Column);
    const rows = said.labels.map((one): Cell[] => [
      one.by, one.env, one.labels, Number(one.effective.toFixed(1)),
      Object.entries(one.left_out).map(([how, times]) => `${how} ${times}`).join(", "),
      one.mean === null ? "" : number(one.mean) + (one.interval ? ` [${one.interval.map(number).join(", ")}]` : ""),
      one.agreement?.accuracy ?? null, one.agreement?.tau_b ?? null,
    ]);
    const methods = [...new Set(said.labels.map((one) => one.method))].join("; ");
    const differing = [["episode", "episode", "episode"], ["reward", "reward", "number"], ["score", "people's mean score", "number"]]
      .map(([key, label, kind]) => ({ key, label, kind, help: "" }) as Column);
    const table = (title: string, of: Column[], cells: Cell[][], note: string): HTMLElement =>
      block({ type: "table", title, columns: of, rows: cells, note, folded: false });
    return h("div", {},
      h("h1", {}, "Labels"),
      h("p", { class: "note" }, `You label as ${said.by}. ${share} of the queue is random; the rest is of both tails of reward, and of episodes on which graders and people disagree. `,
        h("button", { type: "button", click: () => this.key("q") }, h("kbd", {}, "q"), " next episode")),
      h("h2", { class: "hidden" }, "What the labels say"),
      rows.length ? table("Scores of people", columns, rows, `Means with 95 % intervals, and agreement with the reward, of ${methods}.`)
        : h("p", { class: "message" }, "No person has scored an episode."),
      said.disagreements.length ? table("Graders and people disagree", differing, said.disagreements.map((one) => [one.episode, one.reward, one.score]), "Their ranks among the scored episodes of the environment differ by more than a quarter.") : null);
  }

  /** The episode that a key is about: on the page of a group, the focused completion. */
  private episode(): string {
    const focused = document.activeElement?.closest<HTMLElement>("[data-member]");
    return this.current && (focused?.dataset.member ?? this.current);
  }

  private async label(label: { score?: number; note?: string; best?: boolean }): Promise<void> {
    const episode = this.episode();
    const draw = this.drawn?.episode === episode ? this.drawn.draw : "";
    await this.tell(async () => `Saved: ${this.words(await this.ask<Current>("", { episode, draw, ...label }))}`);
  }

  private async next(): Promise<string> {
    if (this.drawn?.episode) this.skipped = [...this.skipped.slice(-999), this.drawn.episode];
    const drawn = await this.ask<Drawn>("next", { skipped: this.skipped });
    if (!drawn.episode) return "No episode is left to draw.";
    this.drawn = drawn;
    location.hash = episodeAddress(drawn.episode);
    return "";
  }

  private async undo(): Promise<string> {
    const found = await this.ask<Current>("undo", {});
    return `Undone; ${String(found.episode).slice(0, 8)}: ${this.words(found)}`;
  }

  private words(found: Current): string {
    const why = this.current && this.drawn?.episode === (found.episode ?? this.current) ? `drawn: ${this.drawn.selection}; ` : "";
    const known = [
      found.score === null ? "no score" : `score ${found.score}`,
      found.best ? "best of its group" : "",
      found.note ? `note “${found.note.length > 60 ? `${found.note.slice(0, 60)}…` : found.note}”` : "",
    ];
    this.note.value = found.note;
    return why + known.filter(Boolean).join(", ");
  }

  private openNote(): void {
    this.form.hidden = false;
    this.note.focus();
  }

  private closeNote(): void {
    if (this.form.contains(document.activeElement)) (document.activeElement as HTMLElement).blur();
    this.form.hidden = true;
  }

  private saveNote(): void {
    const note = this.note.value;
    this.closeNote();
    void this.label({ note });
  }

  /** Shows what the newest action says, or why one failed. */
  private async tell(action: () => Promise<string>): Promise<void> {
    const turn = ++this.turn;
    try {
      const words = await action();
      if (turn !== this.turn) return;
      this.status.className = "";
      if (words) replace(this.status, words);
    } catch (error) {
      this.bar.hidden = false;
      this.status.className = "bad";
      replace(this.status, `✗ ${(error as Error).message}`);
    }
  }

  private async ask<T>(path: string, body?: unknown): Promise<T> {
    const headers = { "content-type": "application/json", "x-mttp-token": this.token };
    const request = body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) };
    const response = await fetch(`api/labels${path && "/"}${path}`, request);
    if (response.ok) return (await response.json()) as T;
    const refusal = (await response.json().catch(() => ({}))) as { error?: string };
    throw new Error(refusal.error ?? `The server answered ${response.status}.`);
  }
}

/** The labels, where the page may send any. */
export function labels(): Labels | null {
  const token = document.querySelector('meta[name="mttp-labels"]')?.getAttribute("content");
  return token ? new Labels(token) : null;
}
