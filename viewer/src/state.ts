/** The page's state, kept in the address, so that links can be shared. */

import type { Filter, Query } from "./data";

export type Place =
  | { page: "overview"; section: string }
  | { page: "episodes"; query: Query }
  | { page: "episode"; id: string; step: number | null }
  | { page: "group"; member: string }
  | { page: "update"; run: string; index: number }
  | { page: "compare"; ids: [string, string] }
  | { page: "labels" };

export const PAGE_ROWS = 100;
const OPERATORS: Filter["operator"][] = ["!=", "<=", ">=", "=", "<", ">", "~"];

export const emptyQuery = (): Query => ({ search: "", filters: [], sort: "start", descending: true, offset: 0, limit: PAGE_ROWS, texts: false, runs: shown.runs });

/** What holds on all pages, and is in each address: the picked runs, and what the reader chose for the curves. */
export const shown = {
  /** Ids; none means all runs. */
  runs: [] as string[],
  axis: "",
  log: false,
  marks: true,
  hidden: new Set<string>(),
  /** The part of an axis that is shown, by axis. */
  zoom: new Map<string, [number, number]>(),
};

function readShown(values: URLSearchParams): void {
  shown.runs = values.getAll("run");
  shown.axis = values.get("axis") ?? "";
  shown.log = values.has("log");
  shown.marks = values.get("marks") !== "no";
  shown.hidden = new Set(values.getAll("hide"));
  shown.zoom = new Map(values.getAll("zoom").flatMap((text) => {
    const [axis = "", from, to] = text.split("~");
    return Number(from) < Number(to) ? [[axis, [Number(from), Number(to)]]] : [];
  }));
}

/** An address with what holds on all pages. */
function address(path: string, own: [string, string][] = []): string {
  const values = new URLSearchParams([...own, ...shown.runs.map((id): [string, string] => ["run", id])]);
  if (shown.axis) values.set("axis", shown.axis);
  if (shown.log) values.set("log", "yes");
  if (!shown.marks) values.set("marks", "no");
  for (const name of shown.hidden) values.append("hide", name);
  for (const [axis, [from, to]] of shown.zoom) values.append("zoom", `${axis}~${from}~${to}`);
  const text = String(values);
  return `#/${path}${text ? `?${text}` : ""}`;
}

export const overviewAddress = (section = ""): string => address(section ? `overview/${encodeURIComponent(section)}` : "overview");

/** The same address with what holds on all pages now. */
export function carried(hash: string): string {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const own = [...new URLSearchParams(search)].filter(([name]) => !["run", "axis", "log", "marks", "hide", "zoom"].includes(name));
  return address(path || "overview", own);
}

/** Writes what holds on all pages into the address of this one. */
export const writeShown = (): void => history.replaceState(null, "", carried(location.hash));

export function read(hash: string): Place {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const values = new URLSearchParams(search);
  readShown(values);
  const [page, first, second] = path.split("/").map(decodeURIComponent);
  if (page === "episodes") return { page, query: readQuery(values) };
  if (page === "episode" && first) {
    const step = values.get("step");
    return { page, id: first, step: step === null ? null : Number(step) };
  }
  if (page === "group" && first) return { page, member: first };
  if (page === "update" && first && second) return { page, run: first, index: Number(second) };
  if (page === "compare" && first && second) return { page, ids: [first, second] };
  if (page === "labels") return { page };
  return { page: "overview", section: page === "overview" ? (first ?? "") : "" };
}

function readQuery(values: URLSearchParams): Query {
  const query = emptyQuery();
  query.search = values.get("search") ?? "";
  query.filters = values.getAll("filter").flatMap((text) => parseFilter(text) ?? []);
  query.sort = values.get("sort") ?? query.sort;
  query.descending = (values.get("order") ?? "descending") === "descending";
  query.offset = Math.max(0, Number(values.get("offset")) || 0);
  return query;
}

/** A filter from text such as `reward>=0.5`; null if it holds no operator. */
export function parseFilter(text: string): Filter | null {
  const places = OPERATORS.map((operator) => ({ operator, place: text.indexOf(operator) })).filter((one) => one.place > 0);
  places.sort((one, other) => one.place - other.place || other.operator.length - one.operator.length);
  const found = places[0];
  if (!found) return null;
  return {
    column: text.slice(0, found.place).trim(),
    operator: found.operator,
    value: text.slice(found.place + found.operator.length).trim(),
  };
}

export const filterText = (filter: Filter): string => `${filter.column}${filter.operator}${filter.value}`;

export function listAddress(query: Query): string {
  const own: [string, string][] = query.search ? [["search", query.search]] : [];
  for (const filter of query.filters) own.push(["filter", filterText(filter)]);
  own.push(["sort", query.sort], ["order", query.descending ? "descending" : "ascending"]);
  if (query.offset) own.push(["offset", String(query.offset)]);
  return address("episodes", own);
}

export function episodeAddress(id: string, step?: number): string {
  return address(`episode/${encodeURIComponent(id)}`, step === undefined ? [] : [["step", String(step)]]);
}

export const compareAddress = (one: string, other: string): string =>
  address(`compare/${encodeURIComponent(one)}/${encodeURIComponent(other)}`);

/** The page of the group of an episode. */
export const groupAddress = (member: string): string => address(`group/${encodeURIComponent(member)}`);

export const updateAddress = (run: string, index: number): string => address(`update/${encodeURIComponent(run)}/${index}`);
