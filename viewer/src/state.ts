/** The page's state, kept in the address, so that links can be shared. */

import type { Filter, Query } from "./data";

export type Place =
  | { page: "overview"; section: string }
  | { page: "episodes"; query: Query }
  | { page: "episode"; id: string; step: number | null }
  | { page: "group"; member: string }
  | { page: "compare"; ids: [string, string] }
  | { page: "labels" };

export const PAGE_ROWS = 100;
const OPERATORS: Filter["operator"][] = ["!=", "<=", ">=", "=", "<", ">", "~"];

export const emptyQuery = (): Query => ({ search: "", filters: [], sort: "start", descending: true, offset: 0, limit: PAGE_ROWS, texts: false });

export function read(hash: string): Place {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const values = new URLSearchParams(search);
  const [page, first, second] = path.split("/").map(decodeURIComponent);
  if (page === "episodes") return { page, query: readQuery(values) };
  if (page === "episode" && first) {
    const step = values.get("step");
    return { page, id: first, step: step === null ? null : Number(step) };
  }
  if (page === "group" && first) return { page, member: first };
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
  const values = new URLSearchParams();
  if (query.search) values.set("search", query.search);
  for (const filter of query.filters) values.append("filter", filterText(filter));
  values.set("sort", query.sort);
  values.set("order", query.descending ? "descending" : "ascending");
  if (query.offset) values.set("offset", String(query.offset));
  return `#/episodes?${values}`;
}

export function episodeAddress(id: string, step?: number): string {
  return `#/episode/${encodeURIComponent(id)}${step === undefined ? "" : `?step=${step}`}`;
}

export const compareAddress = (one: string, other: string): string =>
  `#/compare/${encodeURIComponent(one)}/${encodeURIComponent(other)}`;

/** The page of the group of an episode. */
export const groupAddress = (member: string): string => `#/group/${encodeURIComponent(member)}`;
