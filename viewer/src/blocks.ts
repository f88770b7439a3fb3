/** The blocks of a section as elements. */

import { histogram, lines, scatter } from "./charts";
import type { Block, Cell, Column, Facts, Findings, State, Table } from "./data";
import { h, link, replace } from "./dom";
import { curves, film, strip, timeline } from "./course";
import { call, message, reward, step, tokens } from "./episode";
import { cell, number } from "./format";
import { pick } from "./picking";
import { emptyQuery, episodeAddress, groupAddress, listAddress, shown, updateAddress } from "./state";

const MARKS: { [state in State]: string } = { good: "✓ ", bad: "✗ ", warn: "! ", plain: "" };

export function block(found: Block): HTMLElement {
  switch (found.type) {
    case "note":
      return h("p", { class: `message ${found.state}` }, MARKS[found.state] + found.text);
    case "facts":
      return facts(found.items);
    case "table":
      return table(found);
    case "findings":
      return findings(found);
    case "lines":
      return lines(found);
    case "histogram":
      return histogram(found);
    case "scatter":
      return scatter(found, (id) => (location.hash = episodeAddress(id)));
    case "step":
      return h("ol", { class: "steps" }, step(found));
    case "message":
      return message(found);
    case "call":
      return call(found);
    case "reward":
      return reward(found);
    case "tokens":
      return tokens(found);
    case "curves":
      return curves(found);
    case "strip":
      return strip(found);
    case "film":
      return film(found);
    case "timeline":
      return timeline(found);
  }
}

export function facts(items: Facts["items"]): HTMLElement {
  return h("dl", { class: "facts" }, ...items.map((item) =>
    h("div", { class: item.state },
      h("dt", {}, item.label),
      h("dd", {}, MARKS[item.state] + (item.value === null ? "unknown" : cell(item.value)), item.detail ? h("small", {}, item.detail) : null),
    )));
}

/** The words for an end, a severity or a failure, as `mttp.pages.blocks` has them. */
const WORDS: { [state in State]: string } = {
  good: "better completed full gained ok pass promote reproduced success",
  bad: "diverged error errored fail failed failure high invalid lost opaque reject violation worse",
  warn: "aborted abstained changed improvement inconclusive medium missing partial refused timed_out unfinished unstable warning",
  plain: "",
};
const STATES = new Map(Object.entries(WORDS).flatMap(([state, words]) => words.split(" ").map((word) => [word, state as State])));

/** The state of a word, shown by its mark; never by the colour alone. */
export function stateOf(word: Cell): State {
  return STATES.get(String(word)) ?? "plain";
}

/** A bar from the middle: to the right above zero, to the left below. */
export function bar(value: number | null, size: number): HTMLElement {
  const fill = h("span", { class: (value ?? 0) < 0 ? "fill below" : "fill" });
  const share = Math.min(1, Math.abs(value ?? 0) / size) * 50;
  fill.style.width = `${share}%`;
  fill.style.marginLeft = (value ?? 0) < 0 ? `${50 - share}%` : "50%";
  return h("span", { class: "bar", "aria-hidden": "true" }, fill);
}

/** A cell; `size` is the largest number of a column of bars. */
export function cellOf(value: Cell, column: Column, size = 1): Node {
  if (value === null || value === "") return h("td", { class: column.kind });
  if (column.kind === "bars" && typeof value === "number") return h("td", { class: "short" }, bar(value, size), number(value));
  if (column.kind === "episode") return h("td", {}, link(episodeAddress(String(value)), String(value).slice(0, 8)));
  if (column.kind === "episodes") {
    const ids = String(value).split(" ").filter(Boolean);
    return h("td", { class: "ids" }, ...ids.flatMap((id) => [link(episodeAddress(id), id.slice(0, 8)), " "]));
  }
  if (column.kind === "group") {
    const [member = "", ...id] = String(value).split(" ");
    return h("td", {}, link(groupAddress(member), id.join(" ")));
  }
  if (column.kind === "update") {
    const text = String(value), place = text.lastIndexOf(" ");
    return h("td", { class: "number" }, link(updateAddress(text.slice(0, place), Number(text.slice(place + 1))), text.slice(place + 1)));
  }
  if (column.kind === "run") {
    const [id = "", ...name] = String(value).split(" ");
    return h("td", {}, link(listAddress({ ...emptyQuery(), filters: [{ column: "run", operator: "=", value: id }] }), name.join(" ") || id));
  }
  if (column.kind === "state") {
    const state = stateOf(value);
    return h("td", { class: `short ${state}` }, MARKS[state] + cell(value, column.kind));
  }
  const text = cell(value, column.kind);
  return h("td", { class: text.length < 20 ? `short ${column.kind}` : column.kind, title: text.length > 60 ? text : null }, text);
}

/** Rows of a table that are shown before the rest is asked for. */
const FIRST_ROWS = 10;

function table(found: Table): HTMLElement {
  const body = h("tbody");
  let sorted = -1, descending = false, ordered = found.rows, all = found.folded || found.rows.length <= FIRST_ROWS + 2;
  const shownAt = found.columns.findIndex((column) => column.key === "shown");
  const sizes = found.columns.map((column, place) => (column.kind === "bars" ? found.rows.reduce((most, row) => Math.max(most, Math.abs(Number(row[place] ?? 0))), 0) || 1 : 1));
  const fill = (rows: Cell[][]): void => {
    ordered = rows;
    replace(body, ...rows.slice(0, all ? rows.length : FIRST_ROWS).map((row) => {
      const own = row[shownAt] === "this one";
      return h("tr", { class: own ? "marked" : null, "aria-current": own ? "true" : null }, found.picks ? picking(String(row[0]).split(" ")) : null, ...found.columns.map((column, index) => cellOf(row[index] ?? null, column, sizes[index])));
    }));
  };
  const more = all ? null : h("button", { type: "button", click: () => { all = true; more?.remove(); fill(ordered); } }, `Show all ${found.rows.length.toLocaleString("en")} rows`);
  const heads = found.columns.map((column, place) => {
    const button = h("button", { type: "button", title: column.help || null, click: () => sort(place) }, column.label);
    return h("th", { scope: "col", class: column.kind === "episode" ? null : column.kind, "aria-sort": "none" }, button);
  });
  const sort = (place: number): void => {
    descending = sorted === place ? !descending : found.columns[place]?.kind !== "text";
    sorted = place;
    heads.forEach((head, index) => head.setAttribute("aria-sort", index !== place ? "none" : descending ? "descending" : "ascending"));
    fill([...found.rows].sort((one, other) => compared(one[place] ?? null, other[place] ?? null, descending)));
  };
  fill(found.rows);
  const grid = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${found.title || found.columns[0]?.label || ""} (table)` }, h("table", {}, h("thead", {}, h("tr", {}, found.picks ? h("th", { scope: "col" }, h("span", { class: "hidden" }, "pick")) : null, ...heads)), body));
  const note = found.note ? h("p", { class: "note" }, found.note) : null;
  if (found.folded) return h("details", { class: "block" }, h("summary", {}, h("h3", {}, `${found.title} (${found.rows.length.toLocaleString("en")})`)), grid, note);
  return h("section", { class: "block" }, found.title ? h("h3", {}, found.title) : null, grid, more, note);
}

/** A box that picks a run. */
function picking([id = "", ...name]: string[]): HTMLElement {
  const box = h("input", { type: "checkbox", id: `pick-${id}`, "aria-label": `Pick the run ${name.join(" ") || id}`, checked: shown.runs.includes(id), change: () => {
    pick(box.checked ? [...shown.runs, id] : shown.runs.filter((one) => one !== id));
  } });
  return h("td", {}, box);
}

function compared(one: Cell, other: Cell, descending: boolean): number {
  if (one === null || other === null) return one === other ? 0 : one === null ? 1 : -1;
  const found = typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en");
  return descending ? -found : found;
}

function findings(found: Findings): HTMLElement {
  return h("section", { class: "block" },
    h("h3", {}, "Findings"),
    h("ul", { class: "findings" }, ...found.items.map((item) =>
      h("li", { class: item.state },
        h("h4", {}, h("span", { class: "severity" }, `${MARKS[item.state]}${item.severity}`), " ", item.kind.replace(/_/g, " ")),
        h("p", {}, item.evidence),
        item.advice ? h("p", {}, h("b", {}, "What usually helps: "), item.advice) : null,
        item.episodes.length ? h("p", {}, "Episodes: ", ...item.episodes.flatMap((id) => [link(episodeAddress(id), id.slice(0, 8)), " "])) : null,
      ))),
    h("p", { class: "note" }, found.note),
  );
}
