/** Numbers, times and shares as people read them. */

import type { Cell, Column } from "./data";

/** Four significant digits; integers in full, with separators. */
export function number(value: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(3).replace("+", "");
  return String(Number(value.toPrecision(4)));
}

export function seconds(value: number): string {
  if (value < 1) return `${number(value * 1000)} ms`;
  if (value < 120) return `${Number(value.toPrecision(3))} s`;
  const minutes = Math.floor(value / 60);
  return minutes < 120 ? `${minutes} min ${Math.round(value % 60)} s` : `${Number((value / 3600).toPrecision(3))} h`;
}

export function time(milliseconds: number): string {
  return new Date(milliseconds).toISOString().replace("T", " ").slice(0, 19);
}

export function cell(value: Cell, kind: Column["kind"] = "number"): string {
  if (value === null) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return kind === "episode" ? value.slice(0, 8) : value;
  if (kind === "time") return time(value);
  if (kind === "seconds") return seconds(value);
  if (kind === "share") return `${Number((100 * value).toPrecision(3))} %`;
  return number(value);
}

export function count(n: number, noun: string): string {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}
