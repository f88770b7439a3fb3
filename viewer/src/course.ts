/** An episode over its steps: curves, actions, frames and its timeline. */

import { colour, svgElement } from "./charts";
import type { Curves, Film, Strip, Timeline } from "./data";
import { h, link, replace, scrolling, visible } from "./dom";
import { number, seconds } from "./format";
import { episodeAddress, read } from "./state";

const WIDTH = 240, HEIGHT = 36;

/** The address of a step of the episode that is shown. */
function stepAddress(place: number): string {
  const shown = read(location.hash);
  return shown.page === "episode" ? episodeAddress(shown.id, place) : location.hash;
}

/** Curves with one cursor: where the pointer is, each says its value, and a click leads to the step. */
export function curves(found: Curves): HTMLElement {
  const all = found.items.map((one) => sparkline(one.name, one.values));
  const length = Math.max(1, ...found.items.map((one) => one.values.length));
  const grid = h("div", { class: "curves" }, ...all.map((one) => one.element));
  const placeOf = (event: PointerEvent | MouseEvent): number | null => {
    const svg = (event.target as Element).closest?.(".sparkline")?.querySelector("svg");
    if (!svg) return null;
    const box = svg.getBoundingClientRect();
    return Math.max(0, Math.min(length - 1, Math.round(((event.clientX - box.left) / box.width) * (length - 1))));
  };
  grid.addEventListener("pointermove", (event) => { const place = placeOf(event); for (const one of all) one.mark(place); });
  grid.addEventListener("pointerleave", () => { for (const one of all) one.mark(null); });
  grid.addEventListener("click", (event) => { const place = placeOf(event); if (place !== null) location.hash = stepAddress(place); });
  const rows = scrolling("Curves (numbers)");
  const numbers = h("details", { toggle: () => {
    if (!numbers.open || rows.firstChild) return;
    replace(rows, h("table", {}, h("thead", {}, h("tr", {}, ...["step", ...found.items.map((one) => one.name)].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...Array.from({ length: Math.min(length, 1000) }, (_, place) => h("tr", {}, h("td", {}, place), ...found.items.map((one) => { const value = one.values[place]; return h("td", { class: "number" }, value === null || value === undefined ? "" : number(value)); }))))));
  } }, h("summary", {}, "Numbers"), rows);
  return h("div", { class: "block" }, grid, numbers);
}

/** A curve as a line of a few pixels, with its lowest and highest value, or that at the cursor. */
function sparkline(name: string, values: (number | null)[]): { element: HTMLElement; mark: (place: number | null) => void } {
  const known = values.filter((value): value is number => value !== null);
  const low = known.reduce((one, other) => Math.min(one, other), Infinity);
  const high = known.reduce((one, other) => Math.max(one, other), -Infinity);
  const x = (place: number): number => (place / Math.max(1, values.length - 1)) * WIDTH;
  const y = (value: number): number => (high === low ? HEIGHT / 2 : HEIGHT - 2 - ((value - low) / (high - low)) * (HEIGHT - 4));
  let path = "", gap = true;
  values.forEach((value, place) => {
    if (value === null) gap = true;
    else {
      path += `${gap ? "M" : "L"}${x(place).toFixed(1)},${y(value).toFixed(1)}`;
      gap = false;
    }
  });
  const svg = svgElement("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", role: "img", "aria-label": `${visible(name)} over the steps, from ${number(low)} to ${number(high)}` });
  const cursor = svgElement("line", { class: "cursor", y1: 0, y2: HEIGHT, x1: -9, x2: -9 });
  svg.append(svgElement("path", { d: path }), cursor);
  const range = known.length ? `${number(low)} to ${number(high)}` : "no value";
  const shown = h("span", { class: "range" }, range);
  const mark = (place: number | null): void => {
    const at = place === null ? -9 : x(place), value = place === null ? undefined : values[place];
    cursor.setAttribute("x1", String(at));
    cursor.setAttribute("x2", String(at));
    shown.textContent = place === null ? range : `step ${place}: ${value === null || value === undefined ? "no value" : number(value)}`;
  };
  return { element: h("div", { class: "sparkline" }, h("span", { class: "label" }, name), svg, shown), mark };
}

export function strip({ actions }: Strip): HTMLElement {
  const known = [...new Set(actions.filter((one): one is number => one !== null))].sort((one, other) => one - other);
  const cells = actions.slice(0, 2000).map((action, place) => {
    const cell = h("span", { title: `step ${place}: ${action === null ? "no action" : `action ${action}`}` });
    if (action !== null) cell.style.background = colour(known.indexOf(action));
    return cell;
  });
  const legend = known.slice(0, 8).map((action) => {
    const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = colour(known.indexOf(action));
    return h("li", {}, swatch, `action ${action}: ${actions.filter((one) => one === action).length.toLocaleString("en")}`);
  });
  return h("div", {}, h("div", { class: "strip", role: "img", "aria-label": `Actions of ${actions.length} steps` }, ...cells), h("ul", { class: "legend" }, ...legend));
}

let pictures = new Map<number, string>();

/** Makes the pictures of steps known, by their places, before a film is drawn. */
export function setPictures(found: Map<number, string>): void {
  pictures = found;
}

/** The frames of the steps in a row, each a link to its step. */
export function film(found: Film): HTMLElement {
  return h("div", { class: "film", tabindex: 0, role: "group", "aria-label": `${found.places.length} frames` }, ...found.places.filter((place) => pictures.has(place)).map((place) =>
    h("a", { href: stepAddress(place), title: `step ${place}` }, h("img", { src: pictures.get(place), alt: `frame of step ${place}`, loading: "lazy" }), h("small", {}, place))));
}

const BARS = 200;

export function timeline({ spans }: Timeline): HTMLElement {
  const end = spans.reduce((latest, one) => Math.max(latest, one.start + one.duration), 0) || 1;
  const kept = spans.slice(0, BARS);
  return h("details", { class: "timeline", open: spans.length <= 40 }, h("summary", {}, `${spans.length.toLocaleString("en")} spans in ${seconds(end / 1000)}`),
    h("ol", {}, ...kept.map((one) => {
      const fill = h("span", { class: `fill of-${one.kind}${one.error ? " failed" : ""}` });
      fill.style.left = `${(100 * one.start) / end}%`;
      fill.style.width = `${Math.max(0.3, (100 * one.duration) / end)}%`;
      const text = `${one.error ? "✗ " : ""}${one.name}`;
      const name = h("span", { class: "name" }, one.step === null ? text : link(stepAddress(one.step), text));
      name.style.paddingLeft = `${one.depth}em`;
      return h("li", {}, name, h("span", { class: "track", "aria-hidden": "true" }, fill), h("span", { class: "time" }, seconds(one.duration / 1000)));
    })),
    spans.length > BARS ? h("p", { class: "note" }, `The first ${BARS} of ${spans.length.toLocaleString("en")} spans.`) : null);
}

