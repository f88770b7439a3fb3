/** Filtering, sorting and paging of rows in the page, with the same rules as the server's. */

import type { Cell, Column, EpisodePage, Filter, Query } from "./data";

/** `texts` are whole texts of each row, of which its cells show the ends. */
export function run(query: Query, columns: Column[], all: Cell[][], texts: string[][] = []): EpisodePage {
  const keys = new Map(columns.map((column, place) => [column.key, place]));
  const placed = (key: string): number => {
    const place = keys.get(key);
    if (place === undefined) throw new Error(`there is no column '${key}'; give one of ${[...keys.keys()].join(", ")}`);
    return place;
  };
  const tests = query.filters.map((filter) => ({ place: placed(filter.column), test: condition(filter) }));
  const words = query.search.toLowerCase().split(/\s+/).filter(Boolean);
  const of = keys.get("run");
  const rows = all.map((row, index) => ({ row, texts: texts[index] ?? [] }))
    .filter((one) => !query.runs.length || of === undefined || query.runs.includes(String(one.row[of])));
  const matched = rows.filter(
    (one) => tests.every(({ place, test }) => test(one.row[place] ?? null)) && (!words.length || holds([...one.row, ...one.texts], words)),
  );
  const place = placed(query.sort);
  matched.sort((one, other) => order(one.row[place] ?? null, other.row[place] ?? null, query.descending));
  const shown = matched.slice(query.offset, query.offset + query.limit);
  return { total: rows.length, matched: matched.length, columns, rows: shown.map((one) => one.row), texts: query.texts && texts.length ? shown.map((one) => one.texts) : null };
}

function holds(row: Cell[], words: string[]): boolean {
  const text = row.filter((value) => typeof value === "string").join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** Missing values come last in both directions. */
function order(one: Cell, other: Cell, descending: boolean): number {
  if (one === null || other === null) return one === other ? 0 : one === null ? 1 : -1;
  const found = typeof one === "number" && typeof other === "number" ? one - other : text(one).localeCompare(text(other), "en");
  return descending ? -found : found;
}

function text(value: Cell): string {
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

/** Whether a cell matches; only `!=` matches a missing value. */
export function condition(filter: Filter): (value: Cell) => boolean {
  const { operator, value: wanted } = filter;
  const as_number = wanted.trim() === "" ? NaN : Number(wanted);
  if (operator === "~") {
    const pattern = expression(wanted);
    return (value) => value !== null && pattern.test(text(value));
  }
  const compared = (value: Cell): number =>
    typeof value === "number" ? value - as_number : text(value) < wanted ? -1 : text(value) > wanted ? 1 : 0;
  const tests: { [operator: string]: (found: number) => boolean } = {
    "=": (found) => found === 0,
    "!=": (found) => found !== 0,
    "<": (found) => found < 0,
    "<=": (found) => found <= 0,
    ">": (found) => found > 0,
    ">=": (found) => found >= 0,
  };
  const test = tests[operator] ?? (() => false);
  return (value) => (value === null ? operator === "!=" : test(compared(value)));
}

/** A regular expression; text that is none is searched as it stands. */
function expression(text: string): RegExp {
  try {
    return new RegExp(text, "i");
  } catch {
    return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
  }
}
