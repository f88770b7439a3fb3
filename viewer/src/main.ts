/** The page: reads its address, shows the overview, the list, an episode or two, and listens to keys. */

import "./style.css";
import { browserPage, move, runOf } from "./browser";
import type { Overview, Query } from "./data";
import { h, link, replace } from "./dom";
import { episodePage, showStep, type Neighbours } from "./episode";
import { groupPage, groupsOf, moveCompletion, nextGroup } from "./group";
import { KEYS as LABEL_KEYS, labels } from "./labels";
import { overviewPage } from "./overview";
import { comparePage } from "./sidebyside";
import { source } from "./source";
import { carried, emptyQuery, episodeAddress, listAddress, overviewAddress, PAGE_ROWS, read, shown, updateAddress, writeShown } from "./state";
import { updatePage } from "./update";

const data = source();
const labelled = labels();
const picked = new Set<string>();
let query: Query = emptyQuery();
/** Trace ids of the list that an episode was opened from, for its neighbours. */
let listed: string[] = [];
/** The addresses of the updates before and after the one that is open. */
let updates: { previous: string | null; next: string | null } = { previous: null, next: null };
let neighbours: Neighbours = { previous: null, next: null };
/** The groups of the overview, and the members of the one that is open. */
let grouped: { groups: string[]; members: string[] } = { groups: [], members: [] };
/** Where keys are text, or a choice. */
const TYPING = "input:not([type=checkbox]), select, textarea";
let drawing = 0;
let refreshing = false;

const main = h("main", { id: "main", tabindex: -1 });
const help = h("dialog", { "aria-label": "Keys" },
  h("h2", {}, "Keys"),
  h("dl", { class: "keys" }, ...[
    ["o", "overview"], ["e", "episodes"], ["/", "search episodes"], ["j, ↓", "next row, episode or update"], ["k, ↑", "previous row, episode or update"],
    ["n, p", "next and previous group, on the page of a group; ← → move over its completions"],
    ["+, −, ← →, 0", "zoom a chart that has the focus, move it, and show all of it again; so do drags"],
    ["Enter", "open the marked episode"], ["Esc", "back to the list"], ["→ ←", "move over tokens, once they have the focus"], ["?", "this list"],
    ...(labelled ? LABEL_KEYS : []),
  ].map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key ?? "")), h("dd", {}, text ?? "")))),
  h("form", { method: "dialog" }, h("button", {}, "Close")));

function header(): HTMLElement {
  const list = link("#/episodes", "Episodes");
  list.addEventListener("click", (event) => { event.preventDefault(); location.hash = listAddress({ ...query, runs: shown.runs }); });
  return h("header", {},
    h("a", { class: "skip", href: "#main", click: (event: Event) => { event.preventDefault(); main.focus(); } }, "Skip to contents"),
    h("nav", { "aria-label": "Pages" }, link("#/overview", "Overview"), " ", list, labelled ? link("#/labels", "Labels") : null),
    data.live ? h("span", { class: "live", role: "status" }, "live") : null,
    h("span", { class: "right" },
      h("button", { type: "button", click: () => help.showModal(), "aria-label": "Keys" }, "?"), " ",
      h("button", { type: "button", click: switchTheme }, "Light or dark")));
}

function switchTheme(): void {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

/** Draws the page of the address; `again` keeps the place where the reader is. */
async function draw(again = false): Promise<void> {
  const turn = ++drawing;
  data.abandon();
  const place = read(location.hash);
  const scroll = again ? scrollY : 0;
  const focused = again ? document.activeElement?.id : "";
  const opened = again ? [...main.querySelectorAll("details")].map((one) => one.open) : [];
  try {
    const [page, then] = await pageOf(place);
    if (turn !== drawing) return;
    const marked = again ? main.querySelector<HTMLElement>("tr.marked")?.dataset.episode : undefined;
    replace(main, page);
    if (!again) labelled?.show(place);
    page.querySelectorAll("details").forEach((one, index) => { if (opened[index]) one.open = true; });
    if (marked) page.querySelector(`tr[data-episode="${CSS.escape(marked)}"]`)?.classList.add("marked");
    document.title = `${page.querySelector("h1")?.textContent ?? "mttp"} - mttp`;
    scrollTo(0, scroll);
    if (focused) document.getElementById(focused)?.focus();
    if (!again) then?.(page);
  } catch (error) {
    if (turn !== drawing) return;
    const message = h("p", { class: "message bad", role: "alert" }, `✗ ${(error as Error).message}`);
    replace(main, message, place.page === "episodes" ? h("p", {}, link(listAddress(emptyQuery()), "Show all episodes")) : null);
  }
}

async function pageOf(place: ReturnType<typeof read>): Promise<[HTMLElement, ((page: HTMLElement) => void)?]> {
  if (place.page === "episodes") {
    query = place.query;
    const [overview, found] = await Promise.all([data.overview(shown.runs), data.episodes(query)]);
    listed = found.rows.map((row) => String(row[0]));
    return [browserPage(overview, query, found, picked)];
  }
  if (place.page === "episode") {
    const found = await data.episode(place.id);
    if (!listed.length) listed = (await data.episodes({ ...query, limit: PAGE_ROWS })).rows.map((row) => String(row[0]));
    const at = listed.indexOf(found.trace_id);
    neighbours = { previous: listed[at - 1] ?? null, next: at < 0 ? null : (listed[at + 1] ?? null) };
    const page = episodePage(found, neighbours);
    page.querySelector("h1")?.after(await updateLine(found.trace_id));
    return [page, (page) => { if (place.step !== null) showStep(page, place.step); }];
  }
  if (place.page === "group") {
    const found = await groupPage(data, place.member);
    grouped = { groups: groupsOf(await data.overview(shown.runs)), members: found.members };
    return [found.page];
  }
  if (place.page === "update") {
    const found = await data.update(place.run, place.index);
    const to = (index: number | null): string | null => (index === null ? null : updateAddress(found.run, index));
    updates = { previous: to(found.previous), next: to(found.next) };
    return [updatePage(found)];
  }
  if (place.page === "labels" && labelled) return [await labelled.page()];
  if (place.page === "compare") {
    const [one, other] = await Promise.all(place.ids.map(named));
    return [comparePage(await data.episode(one!), await data.episode(other!))];
  }
  const overview: Overview = await data.overview(shown.runs);
  return [overviewPage(overview), (page) => {
    const section = place.page === "overview" && place.section ? page.querySelector<HTMLElement>(`#section-${CSS.escape(place.section)}`) : null;
    section?.scrollIntoView();
    section?.focus({ preventScroll: true });
  }];
}

/** A line with the update that trained on an episode; empty without one. */
async function updateLine(id: string): Promise<HTMLElement> {
  const [overview, found] = await Promise.all([data.overview([]), data.episodes({ ...emptyQuery(), filters: [{ column: "episode", operator: "=", value: id }], limit: 1, runs: [] })]);
  const row = found.rows[0], index = row?.[found.columns.findIndex((column) => column.key === "update")];
  if (!row || typeof index !== "number") return h("p", { hidden: true });
  return h("p", { class: "note" }, "Trained on by ", link(updateAddress(runOf(overview, found.columns, row), index), `update ${index}`));
}

/** The trace id that begins with these characters, where a person typed them. */
async function named(id: string): Promise<string> {
  if (id.length === 32) return id;
  const found = await data.episodes({ ...emptyQuery(), filters: [{ column: "episode", operator: "~", value: `^${id}` }], limit: 1 });
  const trace = found.rows[0]?.[0];
  if (!trace) throw new Error(`No episode's id begins with ${id}.`);
  return String(trace);
}

addEventListener("hashchange", () => void draw());
addEventListener("picked", () => void draw(true));
addEventListener("picked-runs", () => { query = { ...query, offset: 0, runs: shown.runs }; listed = []; writeShown(); void draw(true); });
/** Links carry what was chosen after they were made. */
addEventListener("click", (event) => {
  const to = (event.target as Element).closest('a[href^="#/"]');
  to?.setAttribute("href", carried(to.getAttribute("href") ?? ""));
}, true);
addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest(`${TYPING}, .tokens, dialog`)) return;
  const place = read(location.hash);
  const onList = place.page === "episodes", onEpisode = place.page === "episode";
  const step = event.key === "j" || (onList && event.key === "ArrowDown") ? 1 : event.key === "k" || (onList && event.key === "ArrowUp") ? -1 : 0;
  const actions: { [key: string]: () => void } = {
    o: () => { location.hash = overviewAddress(); },
    e: () => { location.hash = listAddress(query); },
    "?": () => help.showModal(),
    "/": () => { if (onList) document.getElementById("search")?.focus(); else location.hash = listAddress(query); },
    Escape: () => { if (!onList) location.hash = listAddress(query); },
  };
  const marked = main.querySelector<HTMLElement>("tr.marked[data-episode]");
  if (labelled?.key(event.key)) event.preventDefault();
  if (event.defaultPrevented) return;
  if (step && onList) move(main, step);
  else if (place.page === "group" && ["n", "p", "j", "k"].includes(event.key)) {
    const next = nextGroup(grouped.groups, grouped.members, event.key === "n" || event.key === "j" ? 1 : -1);
    if (next) location.hash = next;
  } else if (place.page === "group" && ["ArrowRight", "ArrowLeft"].includes(event.key)) moveCompletion(main, event.key === "ArrowRight" ? 1 : -1);
  else if (place.page === "group" && event.key === "Enter" && document.activeElement instanceof HTMLElement && document.activeElement.dataset.member) location.hash = episodeAddress(document.activeElement.dataset.member);
  else if (step && onEpisode) {
    const next = step > 0 ? neighbours.next : neighbours.previous;
    if (next) location.hash = episodeAddress(next);
  } else if (step && place.page === "update") {
    const next = step > 0 ? updates.next : updates.previous;
    if (next) location.hash = next;
  } else if (event.key === "Enter" && onList && marked && !target.closest("a, button")) location.hash = episodeAddress(marked.dataset.episode ?? "");
  else if (actions[event.key]) actions[event.key]?.();
  else return;
  event.preventDefault();
});

const app = document.getElementById("app");
if (app) replace(app, header(), main, labelled?.bar, help);
void draw();
if (data.live) data.watch(refreshSoon);

/** Draws a list or an overview again after a change, with filters and place kept; not while the user types. */
function refreshSoon(): void {
  if (refreshing) return;
  refreshing = true;
  setTimeout(() => {
    refreshing = false;
    const { page } = read(location.hash);
    if (page !== "overview" && page !== "episodes") return;
    const busy = document.hidden || help.open || document.activeElement?.matches(TYPING) || !getSelection()?.isCollapsed;
    if (busy) refreshSoon();
    else void draw(true);
  }, 2000);
}
