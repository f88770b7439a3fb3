/** Tokens as coloured text: one value for each token decides its colour. */

import type { Tokens } from "./data";
import { append, h, replace, visible } from "./dom";
import { number } from "./format";

const AT_ONCE = 3000;
/** From light to dark, readable with the text colour of either theme; blue for less, orange for more. */
const SEQUENTIAL = (share: number): string => `rgb(213 94 0 / ${(0.75 * share).toFixed(3)})`;
const DIVERGING = (share: number): string => (share < 0 ? `rgb(0 114 178 / ${(-0.75 * share).toFixed(3)})` : `rgb(213 94 0 / ${(0.75 * share).toFixed(3)})`);

interface Colouring {
  name: string;
  help: string;
  of: (place: number) => number | null;
  /** Around zero, both sides; else from the least to the most remarkable. */
  diverging: boolean;
  /** Whether low values are the remarkable ones. */
  inverted: boolean;
}

function colourings(tokens: Tokens): Colouring[] {
  const values = tokens.values;
  const at = (name: string) => (place: number) => values[name]?.[place] ?? null;
  const plain = (name: string, label: string, help: string, diverging = false, inverted = false): Colouring[] =>
    values[name] ? [{ name: label, help, of: at(name), diverging, inverted }] : [];
  const found = [
    ...plain("logprobs", "log probability", "darker: less likely under the sampling policy", false, true),
    ...plain("entropies", "entropy", "darker: the policy was less sure"),
    ...plain("advantages", "advantage", "blue: below zero, orange: above", true),
    ...plain("rewards", "reward", "blue: below zero, orange: above", true),
    ...plain("values", "value estimate", "blue: below zero, orange: above", true),
  ];
  for (const [name, label] of [["ref_logprobs", "distance to the reference"], ["trainer_logprobs", "distance to the trainer"]] as const) {
    if (!values.logprobs || !values[name]) continue;
    const own = at("logprobs"), other = at(name);
    found.push({
      name: label,
      help: "log probability minus that of the other policy; orange: more likely than there",
      of: (place) => { const one = own(place), two = other(place); return one === null || two === null ? null : one - two; },
      diverging: true,
      inverted: false,
    });
  }
  const known = new Set(["logprobs", "entropies", "advantages", "rewards", "values", "masks"]);
  for (const name of Object.keys(values)) if (!known.has(name)) found.push(...plain(name, name.replace(/_/g, " "), "darker: higher"));
  return found;
}

let chosen = "log probability";

export function tokenView(tokens: Tokens): HTMLElement {
  const choices = colourings(tokens);
  const text = h("div", { class: "tokens", tabindex: 0, role: "group", "aria-label": "Tokens; the arrow keys move from token to token" });
  const legend = h("p", { class: "note" });
  const status = h("p", { class: "status", role: "status" }, "Hover over a token, or move with the arrow keys, for its numbers.");
  const spans: HTMLElement[] = [];
  const paint = (): void => {
    const found = choices.find((one) => one.name === chosen) ?? choices[0];
    if (found) colour(spans, found, legend);
  };
  const select = h("select", { change: () => { chosen = select.value; paint(); } }, ...choices.map((one) => h("option", { value: one.name }, one.name)));
  if (choices.some((one) => one.name === chosen)) select.value = chosen;
  let marked = -1;
  const show = (place: number): void => {
    spans[marked]?.classList.remove("cursor");
    marked = Math.max(0, Math.min(spans.length - 1, place));
    const span = spans[marked];
    if (!span) return;
    span.classList.add("cursor");
    replace(status, describe(tokens, marked));
  };
  text.addEventListener("mouseover", (event) => {
    const place = (event.target as HTMLElement).dataset?.place;
    if (place !== undefined) show(Number(place));
  });
  text.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    show(Number.isFinite(by) ? marked + by : by < 0 ? 0 : spans.length - 1);
    spans[marked]?.scrollIntoView({ block: "nearest" });
  });
  const more = h("button", { type: "button", click: () => fill() });
  const fill = (): void => {
    const start = spans.length, end = Math.min(tokens.ids.length, start + AT_ONCE);
    for (let place = start; place < end; place++) spans.push(piece(tokens, place));
    append(text, ...spans.slice(start));
    replace(more, `Show ${Math.min(AT_ONCE, tokens.ids.length - end).toLocaleString("en")} more of ${tokens.ids.length.toLocaleString("en")} tokens`);
    more.hidden = end >= tokens.ids.length;
    paint();
  };
  fill();
  return h("div", { class: "token-view" },
    h("p", { class: "tools" }, choices.length ? h("label", {}, "Colour by ", select) : "No numbers for these tokens.", ` ${tokens.ids.length.toLocaleString("en")} tokens, ${tokens.prompt_length.toLocaleString("en")} of them prompt (dimmed, as masked ones are)`),
    legend, text, more, status, tokens.note ? h("p", { class: "note" }, tokens.note) : null);
}

function piece(tokens: Tokens, place: number): HTMLElement {
  const text = tokens.pieces?.[place];
  const id = tokens.ids[place] ?? -1;
  const shown = text === undefined || text === null ? (id < 0 ? "·" : String(id)) : visible(text).replace(/\n/g, "⏎\n").replace(/\t/g, "⇥\t");
  const dimmed = place < tokens.prompt_length || tokens.values.masks?.[place] === 0;
  const element = h("span", { class: dimmed ? "token dimmed" : "token", "data-place": place });
  element.textContent = text === undefined || text === null ? `${shown} ` : shown;
  return element;
}

function colour(spans: HTMLElement[], found: Colouring, legend: HTMLElement): void {
  const values = spans.map((_, place) => found.of(place));
  const known = values.filter((value): value is number => value !== null).sort((one, other) => one - other);
  // The extreme hundredth does not decide the scale: one odd token would leave all others pale.
  const low = known[Math.floor(0.01 * known.length)] ?? 0, high = known[Math.ceil(0.99 * known.length) - 1] ?? 0;
  const size = Math.max(Math.abs(low), Math.abs(high)) || 1, span = high - low || 1;
  values.forEach((value, place) => {
    const element = spans[place];
    if (!element) return;
    // A dimmed token is dimmed in its colour, too, which keeps its text readable.
    const strength = element.classList.contains("dimmed") ? 0.2 : 1;
    if (value === null) element.style.backgroundColor = "";
    else if (found.diverging) element.style.backgroundColor = DIVERGING(strength * Math.max(-1, Math.min(1, value / size)));
    else {
      const share = Math.max(0, Math.min(1, (value - low) / span));
      element.style.backgroundColor = SEQUENTIAL(strength * (found.inverted ? 1 - share : share));
    }
  });
  const ends = known.length ? (found.diverging ? `from ${number(-size)} to ${number(size)}` : `from ${number(low)} to ${number(high)}`) : "no values";
  replace(legend, `${found.name}: ${found.help}; colours ${ends}.`);
}

function describe(tokens: Tokens, place: number): string {
  const id = tokens.ids[place] ?? -1;
  const words = [`token ${place}`, id < 0 ? "id not recorded" : `id ${id}`];
  const text = tokens.pieces?.[place];
  if (text) words.push(JSON.stringify(text));
  words.push(place < tokens.prompt_length ? "prompt" : "completion");
  for (const [name, values] of Object.entries(tokens.values)) {
    const value = values[place];
    if (value !== null && value !== undefined) words.push(`${name.replace(/_/g, " ")} ${number(value)}`);
  }
  return words.join(", ");
}
