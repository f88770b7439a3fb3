/** The page of one episode: its conversation, what graded it, and its course. */

import { bar, block, facts } from "./blocks";
import { setPictures } from "./course";
import type { Call, Episode, Message, Part, Reward, Section, Step, Tokens } from "./data";
import { append, folded, h, link } from "./dom";
import { number } from "./format";
import { asJson, markdown } from "./markdown";
import { compareAddress, episodeAddress, groupAddress } from "./state";
import { tokenView } from "./tokens";

const STEPS_AT_ONCE = 60;

export interface Neighbours { previous: string | null; next: string | null }

export function episodePage(found: Episode, neighbours: Neighbours): HTMLElement {
  setPictures(new Map(stepsOf(found).flatMap((one) => {
    const picture = messagesOf(one).flatMap((each) => each.parts).find((part) => part.src);
    return picture?.src ? [[one.place, picture.src] as [number, string]] : [];
  })));
  return h("div", { class: "episode" },
    h("h1", {}, found.title),
    navigation(found, neighbours),
    ...found.blocks.map((one) => ("type" in one ? block(one) : section(one, found))));
}

/** The steps of an episode. */
export function stepsOf(found: Episode): Step[] {
  return found.blocks.flatMap((one) => ("type" in one ? [] : one.blocks)).filter((one): one is Step => one.type === "step");
}

/** What was seen and done in a step. */
export function messagesOf(found: Step, part = ""): Message[] {
  return found.blocks.filter((one): one is Message => one.type === "message" && (!part || one.part === part));
}

function section(found: Section, episode: Episode): HTMLElement {
  const steps = found.blocks.filter((one): one is Step => one.type === "step");
  const others = found.blocks.filter((one) => one.type !== "step");
  return h("section", { id: `section-${found.id}` },
    h("h2", {}, found.id === "group" ? link(groupAddress(episode.trace_id), found.title) : found.title),
    steps.length ? stepList(steps) : null, ...others.map((one) => (one.type === "message" ? message(one, "h3") : block(one))));
}

function navigation(found: Episode, neighbours: Neighbours): HTMLElement {
  const other = h("input", { type: "text", size: 10, placeholder: "episode", "aria-label": "Episode to compare with" });
  const copy = (text: string): HTMLElement => {
    const button: HTMLElement = h("button", { type: "button", class: "copy", title: "Copy", click: () => {
      void navigator.clipboard?.writeText(text).then(() => { button.textContent = "copied"; });
    } }, "copy");
    return h("span", { class: "command" }, h("code", {}, text), " ", button);
  };
  return h("div", { class: "tools" },
    neighbours.previous ? link(episodeAddress(neighbours.previous), "← previous", "key: k") : null,
    neighbours.next ? link(episodeAddress(neighbours.next), "next →", "key: j") : null,
    h("form", { submit: (event: SubmitEvent) => { event.preventDefault(); if (other.value.trim()) location.hash = compareAddress(found.trace_id, other.value.trim()); } }, other, h("button", {}, "Compare with")),
    h("code", {}, found.trace_id),
    found.command ? copy(found.command) : null, rawChoice());
}

let isRaw = false;

/** Whether texts are shown as they were recorded, or as Markdown. */
function rawChoice(): HTMLElement {
  const choice = h("input", { type: "checkbox", checked: isRaw, change: () => { isRaw = choice.checked; dispatchEvent(new Event("picked")); } });
  return h("label", {}, choice, " texts as recorded");
}

export function reward(found: Reward): HTMLElement {
  const size = Math.max(0, ...found.components.map((one) => Math.abs(one.contribution ?? one.value ?? 0))) || 1;
  const value = found.value === null ? found.status : `${number(found.value)}${found.status === "ok" ? "" : ` (${found.status})`}`;
  return h("div", { class: "scoring" },
    h("p", {}, h("b", { class: found.status === "ok" ? null : "bad" }, found.status === "ok" ? `reward ${value}` : `✗ reward ${value}`), " ", [found.grader, found.spec].filter(Boolean).join(", "), found.explanation ? h("span", { class: "why" }, ` ${found.explanation}`) : null),
    found.error ? h("p", { class: "message bad" }, `✗ ${found.error}`) : null,
    found.components.length ? h("table", { class: "components" },
      h("thead", {}, h("tr", {}, ...["component", "part of the reward", "score", "weight", "explanation"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...found.components.map((one) => h("tr", {},
        indented(h("th", { scope: "row" }, one.name, one.kind ? h("small", {}, ` ${one.kind}`) : null), one.depth),
        h("td", {}, bar(one.contribution ?? (one.weight === null ? null : one.value), size), one.contribution === null ? "" : (one.contribution >= 0 ? "+" : "") + number(one.contribution)),
        h("td", { class: one.status === "ok" ? "number" : "bad" }, one.status === "ok" && one.value !== null ? number(one.value) : `✗ ${one.status}`),
        h("td", { class: "number weight" }, one.weight === null ? "" : number(one.weight)),
        h("td", { class: "why" }, one.explanation, one.error ? h("span", { class: "bad" }, ` ✗ ${one.error}`) : null),
      )))) : null,
    graderCalls(found.grader || "the grader", found.blocks),
    ...found.components.map((one) => graderCalls(one.name, one.blocks)));
}

function indented(cell: HTMLElement, depth: number): HTMLElement {
  if (depth) cell.style.paddingLeft = `${0.6 + depth}rem`;
  return cell;
}

function stepList(found: Step[]): HTMLElement {
  const list = h("ol", { class: "steps" });
  const more = h("button", { type: "button", click: () => fill(STEPS_AT_ONCE) });
  let shown = 0;
  const fill = (by: number): void => {
    append(list, ...found.slice(shown, shown + by).map((one) => step(one)));
    shown = Math.min(found.length, shown + by);
    more.textContent = `Show more of ${found.length.toLocaleString("en")} steps`;
    more.hidden = shown >= found.length;
  };
  fill(STEPS_AT_ONCE);
  list.addEventListener("reveal", (event) => {
    const place = (event as CustomEvent<number>).detail;
    if (place >= shown) fill(place - shown + 1);
  });
  return h("div", {}, list, more);
}

/** Scrolls to a step, which may not be on the page yet. */
export function showStep(page: Element, place: number): void {
  page.querySelector(".steps")?.dispatchEvent(new CustomEvent("reveal", { detail: place }));
  const element = page.querySelector<HTMLElement>(`#step-${place}`);
  element?.scrollIntoView({ block: "start" });
  element?.focus({ preventScroll: true });
}

export function step(found: Step, prefix = "step"): HTMLElement {
  return h("li", { id: `${prefix}-${found.place}`, class: "step", tabindex: -1 },
    h("h3", {}, found.title, h("span", { class: "reward" }, found.words)),
    ...found.blocks.map(block));
}

export function tokens(found: Tokens): HTMLElement {
  return found.ids.length ? lazy(`Tokens: ${found.words}`, () => tokenView(found)) : h("p", { class: "note" }, `Tokens: ${found.words}`);
}

/** The header of a message or call: what it took, and its facts on request. */
function header(found: Message | Call): HTMLElement | null {
  if (!found.words && !found.facts.length) return null;
  return found.facts.length ? h("details", { class: "lazy call-of" }, h("summary", {}, found.words || "facts"), facts(found.facts)) : h("span", { class: "call-of note" }, found.words);
}

export function call(found: Call): HTMLElement {
  return h("div", { class: "call" },
    h("div", { class: "head" }, h("h4", {}, `${found.error ? "✗ " : ""}${found.title}`), header(found)),
    found.error ? h("p", { class: "message bad" }, found.error) : null,
    ...found.blocks.map((one) => (["arguments", "result"].includes(one.role) ? h("div", { class: `content ${one.role}` }, h("h5", {}, one.role), ...one.parts.map(part)) : message(one))));
}

/** The calls of a grader, folded. */
function graderCalls(name: string, calls: Call[]): HTMLElement | null {
  return calls.length ? lazy(`Calls of ${name} (${calls.length})`, () => h("div", {}, ...calls.map(call))) : null;
}

/** Contents that are made when they are opened. */
function lazy(title: string, make: () => HTMLElement): HTMLElement {
  const details = h("details", { class: "lazy", toggle: () => { if (details.open && details.childElementCount === 1) append(details, make()); } }, h("summary", {}, title));
  return details;
}

const ROLES = ["user", "assistant", "system", "tool"];

export function message(found: Message, heading: "h3" | "h4" = "h4"): HTMLElement {
  return h("div", { class: `message-of ${ROLES.includes(found.role) ? found.role : "other"}` },
    h("div", { class: "head" }, h(heading, {}, found.role, found.name ? h("small", {}, ` ${found.name}`) : null), header(found)),
    ...found.parts.map(part), ...found.blocks.map(call));
}

function part(found: Part): Node {
  switch (found.type) {
    case "reasoning":
      return h("details", { class: "reasoning" }, h("summary", {}, `Reasoning, ${found.text.length.toLocaleString("en")} characters`), folded(found.text));
    case "picture":
      return h("img", { src: found.src, alt: found.text || "picture of the message" });
    default: {
      const json = isRaw ? null : asJson(found.text);
      if (json !== null) return folded(json, (text) => h("pre", { class: "text json" }, text));
      return folded(found.text, isRaw || found.type !== "text" ? undefined : markdown);
    }
  }
}
