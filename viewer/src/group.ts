/** The page of a group: its prompt once, its completions side by side in order of reward, with what differs marked. */

import { runOf } from "./browser";
import type { Cell, Column, Overview, Query, Source } from "./data";
import { folded, h, link, replace } from "./dom";
import { cell, number } from "./format";
import { common } from "./sidebyside";
import { emptyQuery, episodeAddress, groupAddress, listAddress, updateAddress } from "./state";

const MOST_MEMBERS = 200;
const SHOWN = ["outcome", "status", "reward_status", "stop_reason", "advantage", "return", "length", "tokens", "error"];

export interface GroupPage { page: HTMLElement; members: string[] }

/** The group of an episode; rejects if it is in none. */
export async function groupPage(data: Source, member: string): Promise<GroupPage> {
  const overview = await data.overview([]);
  const listed = await rows(data, { filters: [{ column: "episode", operator: "=", value: member }], limit: 1 });
  const row = listed.rows[0];
  const own = row && cells(listed.columns, row);
  const id = own?.group;
  if (!own || id === null || id === undefined) throw new Error(`Episode ${member.slice(0, 8)} is in no group.`);
  const filters: Query["filters"] = [{ column: "group", operator: "=", value: String(id) }];
  if (own.run !== undefined && own.run !== null) filters.push({ column: "run", operator: "=", value: String(own.run) });
  const found = await rows(data, { filters, limit: MOST_MEMBERS, texts: true });
  const { columns } = found;
  const score = found.rows.some((one) => cells(columns, one).reward !== null && "reward" in cells(columns, one)) ? "reward" : "return";
  const members = found.rows.map((one, place) => ({ facts: cells(columns, one), texts: found.texts?.[place] ?? null }));
  members.sort((one, other) => value(other.facts[score]) - value(one.facts[score]));
  const prompts = members.map((one) => one.texts?.[0] ?? String(one.facts.prompt ?? ""));
  const completions = members.map((one) => one.texts?.[1] ?? String(one.facts.completion ?? ""));
  const components = columns.filter((one) => one.key.startsWith("components."));
  const least = Math.min(...members.map((one) => value(one.facts[score]))), most = Math.max(...members.map((one) => value(one.facts[score])));
  const range = members.length > 1 && Number.isFinite(least) ? `, ${score} from ${number(least)} to ${number(most)}` : "";
  const mark = { checked: true };
  const grid = h("div", { class: "completions" });
  const fill = (): void => replace(grid, ...members.map((one, place) => card(one.facts, score, components, completions[place] ?? "", mark.checked && place ? (completions[0] ?? "") : null, prompts[place] !== prompts[0] ? (prompts[place] ?? "") : null, String(one.facts.episode) === member)));
  fill();
  const marks = h("input", { type: "checkbox", checked: true, change: () => { mark.checked = marks.checked; fill(); } });
  const stacked = h("input", { type: "checkbox", change: () => grid.classList.toggle("stacked", stacked.checked) });
  const page = h("div", { class: "group" },
    h("h1", {}, `Group ${cell(id)}`),
    h("p", { class: "note" }, `${own.task ? `Task ${cell(own.task)}; ` : ""}${found.matched.toLocaleString("en")} members${range}. `,
      link(listAddress({ ...emptyQuery(), filters, sort: score }), "As a list"),
      typeof own.update === "number" ? h("span", {}, "; trained on by ", link(updateAddress(runOf(overview, listed.columns, row), own.update), `update ${own.update}`)) : null),
    found.matched > members.length ? h("p", { class: "message warn" }, `! The first ${members.length} members are shown.`) : null,
    found.texts ? null : h("p", { class: "message warn" }, "! Only the ends of the texts are in this report: the whole ones would have made it too large."),
    h("h2", {}, "Prompt"), prompts[0] ? folded(prompts[0]) : h("p", { class: "note" }, "no prompt is recorded"),
    h("h2", {}, "Completions"),
    h("p", { class: "tools" }, h("label", {}, marks, " mark what differs from the first"), h("label", {}, stacked, " below each other")),
    grid);
  return { page, members: members.map((one) => String(one.facts.episode)) };
}

type Facts = { [key: string]: Cell };

function rows(data: Source, change: Partial<Query>): ReturnType<Source["episodes"]> {
  return data.episodes({ ...emptyQuery(), sort: "episode", descending: false, runs: [], ...change });
}

function cells(columns: Column[], row: Cell[]): Facts {
  return Object.fromEntries(columns.map((column, place) => [column.key, row[place] ?? null]));
}

function value(found: Cell | undefined): number {
  return typeof found === "number" ? found : -Infinity;
}

function card(facts: Facts, score: string, components: Column[], completion: string, first: string | null, prompt: string | null, isOwn: boolean): HTMLElement {
  const id = String(facts.episode);
  const named = [...components.map((one) => [one.label, facts[one.key]] as const), ...SHOWN.map((key) => [key === "length" ? "steps" : key.replace(/_/g, " "), facts[key]] as const)];
  const usual = new Set(["status completed", "reward status ok", `return ${facts[score]}`]);
  const known = named.filter(([label, one]) => one !== null && one !== undefined && label !== score && !usual.has(`${label} ${one}`));
  return h("article", { class: isOwn ? "completion own" : "completion", tabindex: 0, "data-member": id, "aria-label": `Completion ${id.slice(0, 8)}` },
    h("h3", {}, facts[score] === null || facts[score] === undefined ? `no ${score}` : `${score} ${cell(facts[score] ?? null)}`, " ", link(episodeAddress(id), id.slice(0, 8))),
    h("dl", { class: "facts" }, ...known.map(([label, one]) => h("div", {}, h("dt", {}, label), h("dd", {}, cell(one ?? null))))),
    prompt === null ? null : h("details", {}, h("summary", {}, "its prompt differs"), folded(prompt)),
    completion === "" ? h("p", { class: "note" }, "(empty)") : first === null ? folded(completion, undefined, 4000) : marked(first, completion));
}

const MOST_WORDS = 4000;

/** A text in which the words that another one lacks are marked. */
function marked(first: string, text: string): HTMLElement {
  const words = (of: string): string[] => of.split(/(?<=\s)/);
  const [left, right] = [words(first), words(text)];
  const pairs = common(left, right);
  if (right.length > MOST_WORDS || (!pairs.length && right.length > 1)) return folded(text, undefined, 4000);
  const equal = new Set(pairs.map(([, place]) => place));
  const parts: (Node | string)[] = [];
  for (let place = 0; place < right.length;) {
    const is = equal.has(place);
    let end = place;
    while (end < right.length && equal.has(end) === is) end++;
    const part = right.slice(place, end).join("");
    parts.push(is ? part : h("mark", {}, part));
    place = end;
  }
  return h("pre", { class: "text" }, ...parts);
}

/** Moves the focus to the next completion. */
export function moveCompletion(page: Element, by: number): void {
  const all = [...page.querySelectorAll<HTMLElement>("[data-member]")];
  const now = all.findIndex((one) => one === document.activeElement);
  all[Math.max(0, Math.min(all.length - 1, now + by))]?.focus();
}

/** The members by which the groups of the overview are opened, in the order of its table. */
export function groupsOf(overview: Overview): string[] {
  const blocks = overview.sections.flatMap((section) => section.blocks);
  const table = blocks.find((block) => block.type === "table" && block.columns.some((column) => column.kind === "group"));
  const place = table?.type === "table" ? table.columns.findIndex((column) => column.kind === "group") : 0;
  return table?.type === "table" ? table.rows.map((row) => String(row[place]).split(" ")[0] ?? "") : [];
}

export const nextGroup = (groups: string[], members: string[], by: number): string | null => {
  const now = groups.findIndex((one) => members.includes(one));
  const next = groups[now < 0 ? 0 : now + by];
  return next === undefined ? null : groupAddress(next);
};
