/** The list of episodes: views, search, filters, sorting and pages. */

import { cellOf } from "./blocks";
import type { Cell, Column, EpisodePage, Filter, Overview, Query } from "./data";
import { h, link } from "./dom";
import { cell } from "./format";
import { pickedLine } from "./picking";
import { compareAddress, emptyQuery, episodeAddress, filterText, groupAddress, listAddress, PAGE_ROWS, parseFilter, updateAddress } from "./state";

const OPERATORS: Filter["operator"][] = ["=", "!=", "<", "<=", ">", ">=", "~"];

export function browserPage(overview: Overview, query: Query, found: EpisodePage, picked: Set<string>): HTMLElement {
  const go = (change: Partial<Query>): void => {
    location.hash = listAddress({ ...query, offset: 0, ...change });
  };
  const from = Math.min(query.offset + 1, found.matched), to = Math.min(query.offset + PAGE_ROWS, found.matched);
  return h("div", { class: "browser" },
    h("h1", {}, "Episodes"),
    overview.sampling ? h("p", { class: "note" }, overview.sampling) : null,
    pickedLine(overview),
    h("p", { class: "views", role: "group", "aria-label": "Views" }, ...overview.views.map((view) => {
      const address = listAddress({ ...emptyQuery(), filters: view.filters, sort: view.sort, descending: view.descending });
      const active = address === listAddress({ ...query, offset: 0 });
      const element = link(address, view.name, view.help);
      if (active) element.setAttribute("aria-current", "true");
      return element;
    })),
    tools(found.columns, query, go),
    chips(query, go),
    h("p", { class: "count", role: "status" },
      found.matched === found.total ? `${found.total.toLocaleString("en")} episodes` : `${found.matched.toLocaleString("en")} of ${found.total.toLocaleString("en")} episodes`,
      found.matched > PAGE_ROWS ? `, ${from.toLocaleString("en")} to ${to.toLocaleString("en")} shown` : "",
      picked.size === 2 ? h("span", {}, "; ", link(compareAddress(...([...picked] as [string, string])), "compare the two picked ones")) : picked.size === 1 ? "; pick one more to compare" : ""),
    rows(overview, query, found, picked, go),
    pages(query, found, go),
  );
}

function tools(columns: Column[], query: Query, go: (change: Partial<Query>) => void): HTMLElement {
  const search = h("input", { type: "search", id: "search", value: query.search, placeholder: "words in texts, tasks, errors, ...", "aria-label": "Search episodes" });
  const column = h("select", { "aria-label": "Column" }, ...columns.map((one) => h("option", { value: one.key }, one.key)));
  const operator = h("select", { "aria-label": "Comparison" }, ...OPERATORS.map((one) => h("option", { value: one }, one)));
  const value = h("input", { type: "text", size: 10, placeholder: "value", "aria-label": "Value" });
  column.value = columns.some((one) => one.key === "reward") ? "reward" : "return";
  return h("div", { class: "tools" },
    h("form", { role: "search", submit: (event: SubmitEvent) => { event.preventDefault(); go({ search: search.value.trim() }); } }, search, h("button", {}, "Search")),
    h("form", {
      submit: (event: SubmitEvent) => {
        event.preventDefault();
        const filter = parseFilter(`${column.value}${operator.value}${value.value}`);
        if (filter) go({ filters: [...query.filters, filter] });
      },
    }, column, operator, value, h("button", {}, "Add filter")),
  );
}

function chips(query: Query, go: (change: Partial<Query>) => void): HTMLElement | null {
  const found = query.filters.map((filter, place) =>
    h("button", { type: "button", class: "chip", "aria-label": `Remove the filter ${filterText(filter)}`, click: () => go({ filters: query.filters.filter((_, index) => index !== place) }) }, `${filterText(filter)} ✕`));
  if (query.search) found.push(h("button", { type: "button", class: "chip", "aria-label": "Remove the search", click: () => go({ search: "" }) }, `“${query.search}” ✕`));
  return found.length ? h("p", { class: "chips" }, ...found) : null;
}

function rows(overview: Overview, query: Query, found: EpisodePage, picked: Set<string>, go: (change: Partial<Query>) => void): HTMLElement {
  if (!found.rows.length) return h("p", { class: "message plain" }, found.total ? "No episode matches." : "The recording holds no episodes.");
  const columns = found.columns;
  const heads = columns.map((column) => {
    const sorted = column.key === query.sort;
    const descending = sorted ? !query.descending : !["text", "long", "state"].includes(column.kind);
    return h("th", { scope: "col", class: column.kind, "aria-sort": !sorted ? "none" : query.descending ? "descending" : "ascending" },
      h("button", { type: "button", title: column.help || null, click: () => go({ sort: column.key, descending }) }, column.label));
  });
  const body = found.rows.map((row) => line(overview, columns, row, picked));
  return h("div", { class: "scroll rows", tabindex: 0, role: "region", "aria-label": "Episodes" },
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "hidden" }, "pick")), ...heads)), h("tbody", {}, ...body)));
}

function line(overview: Overview, columns: Column[], row: Cell[], picked: Set<string>): HTMLElement {
  const id = String(row[0]);
  const box = h("input", { type: "checkbox", "aria-label": `Pick episode ${id.slice(0, 8)}`, change: () => {
    if (box.checked) picked.add(id);
    else picked.delete(id);
    if (picked.size > 2) picked.delete([...picked][0] ?? "");
    dispatchEvent(new Event("picked"));
  } });
  box.checked = picked.has(id);
  return h("tr", { "data-episode": id, click: (event: MouseEvent) => {
    if (!(event.target as Element).closest("a, input, button")) location.hash = episodeAddress(id);
  } }, h("td", {}, box), ...columns.map((column, place) => {
    const value = row[place] ?? null;
    if (column.key === "update" && value !== null) return h("td", { class: "number" }, link(updateAddress(runOf(overview, columns, row), Number(value)), cell(value)));
    if (column.key === "group" && value !== null) return h("td", {}, link(groupAddress(id), cell(value)));
    return cellOf(value, column);
  }));
}

/** The id of the run of a row: the only one, where there is no column of runs. */
export function runOf(overview: Overview, columns: Column[], row: Cell[]): string {
  const place = columns.findIndex((column) => column.key === "run");
  return place < 0 ? overview.runs[0]?.id ?? "" : String(row[place]);
}

function pages(query: Query, found: EpisodePage, go: (change: Partial<Query>) => void): HTMLElement | null {
  if (found.matched <= PAGE_ROWS) return null;
  const last = Math.floor((found.matched - 1) / PAGE_ROWS) * PAGE_ROWS;
  const step = (label: string, offset: number, off: boolean): HTMLElement => h("button", { type: "button", disabled: off, click: () => go({ offset }) }, label);
  return h("p", { class: "pages" },
    step("First", 0, query.offset === 0), step("Previous", Math.max(0, query.offset - PAGE_ROWS), query.offset === 0),
    step("Next", query.offset + PAGE_ROWS, query.offset >= last), step("Last", last, query.offset >= last));
}

/** Moves the marked row, and returns its episode. */
export function move(page: Element, by: number): void {
  const all = [...page.querySelectorAll<HTMLElement>("tr[data-episode]")];
  const now = all.findIndex((row) => row.classList.contains("marked"));
  const next = all[Math.max(0, Math.min(all.length - 1, now < 0 ? 0 : now + by))];
  all.forEach((row) => row.classList.toggle("marked", row === next));
  next?.scrollIntoView({ block: "nearest" });
}
