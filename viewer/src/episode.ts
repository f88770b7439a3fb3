/** The page of one episode. */

import { facts } from "./blocks";
import { colour, sparkline } from "./charts";
import type { Call, Content, Episode, Message, Scoring, Step, TimelineSpan } from "./data";
import { append, folded, h, link } from "./dom";
import { number, seconds } from "./format";
import { compareAddress, episodeAddress, groupAddress } from "./state";
import { tokenView } from "./tokens";

const STEPS_AT_ONCE = 60;

export interface Neighbours { previous: string | null; next: string | null }

export function episodePage(found: Episode, neighbours: Neighbours): HTMLElement {
  return h("div", { class: "episode" },
    h("h1", {}, found.title),
    navigation(found, neighbours),
    warnings(found.warnings),
    facts(found.facts),
    h("section", {}, h("h2", {}, "Steps"), steps(found.steps)),
    found.rewards.length ? h("section", {}, h("h2", {}, "Reward"), ...found.rewards.map(scoring)) : null,
    group(found),
    curves(found),
    timeline(found.timeline, found.trace_id),
    found.annotations.length ? h("section", {}, h("h2", {}, "Annotations"), h("ul", {}, ...found.annotations.map((one) => h("li", {}, one)))) : null,
  );
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
    found.command ? copy(found.command) : null);
}

export function warnings(found: string[]): HTMLElement | null {
  return found.length ? h("ul", { class: "warnings" }, ...found.map((one) => h("li", {}, `! ${one}`))) : null;
}

export function scoring(found: Scoring): HTMLElement {
  const size = Math.max(0, ...found.components.map((one) => Math.abs(one.contribution ?? one.value ?? 0))) || 1;
  const value = found.value === null ? found.status : `${number(found.value)}${found.status === "ok" ? "" : ` (${found.status})`}`;
  return h("div", { class: "scoring" },
    h("p", {}, h("b", {}, value), " ", [found.grader, found.spec].filter(Boolean).join(", "), found.explanation ? h("span", { class: "why" }, ` ${found.explanation}`) : null),
    found.error ? h("p", { class: "message bad" }, `✗ ${found.error}`) : null,
    found.components.length ? h("div", { class: "scroll" }, h("table", { class: "components" },
      h("thead", {}, h("tr", {}, ...["component", "part of the reward", "score", "weight", "explanation"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...found.components.map((one) => h("tr", {},
        indented(h("th", { scope: "row" }, one.name, one.kind ? h("small", {}, ` ${one.kind}`) : null), one.depth),
        h("td", {}, bar(one.contribution ?? (one.weight === null ? null : one.value), size), one.contribution === null ? "" : (one.contribution >= 0 ? "+" : "") + number(one.contribution)),
        h("td", { class: one.status === "ok" ? "number" : "bad" }, one.status === "ok" && one.value !== null ? number(one.value) : `✗ ${one.status}`),
        h("td", { class: "number" }, one.weight === null ? "" : number(one.weight)),
        h("td", { class: "why" }, one.explanation, one.error ? h("span", { class: "bad" }, ` ✗ ${one.error}`) : null),
      ))))) : null,
    graderCalls(found.grader || "the grader", found.calls),
    ...found.components.map((one) => graderCalls(one.name, one.calls)));
}

function indented(cell: HTMLElement, depth: number): HTMLElement {
  if (depth) cell.style.paddingLeft = `${0.6 + depth}rem`;
  return cell;
}

/** A bar from the middle: to the right above zero, to the left below. */
function bar(value: number | null, size: number): HTMLElement {
  const fill = h("span", { class: (value ?? 0) < 0 ? "fill below" : "fill" });
  const share = Math.min(1, Math.abs(value ?? 0) / size) * 50;
  fill.style.width = `${share}%`;
  fill.style.marginLeft = (value ?? 0) < 0 ? `${50 - share}%` : "50%";
  return h("span", { class: "bar", "aria-hidden": "true" }, fill);
}

function group(found: Episode): HTMLElement | null {
  if (!found.group) return null;
  const size = (pick: (one: { reward: number | null; advantage: number | null }) => number | null): number => Math.max(0, ...(found.group?.members ?? []).map((one) => Math.abs(pick(one) ?? 0))) || 1;
  const rewards = size((one) => one.reward), advantages = size((one) => one.advantage);
  return h("section", {}, h("h2", {}, "Group ", link(groupAddress(found.trace_id), found.group.id)), h("p", { class: "note" }, found.group.note),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...["member", "reward", "advantage"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...found.group.members.map((one) => {
        const own = one.episode === found.trace_id;
        return h("tr", { class: own ? "marked" : null, "aria-current": own ? "true" : null },
          h("td", {}, link(episodeAddress(one.episode), one.episode.slice(0, 8)), own ? " this one" : ""),
          h("td", {}, bar(one.reward, rewards), one.reward === null ? one.status : number(one.reward)),
          h("td", {}, bar(one.advantage, advantages), one.advantage === null ? "unknown" : number(one.advantage)));
      })))));
}

function curves(found: Episode): HTMLElement | null {
  if (!found.curves.length && !found.action_strip) return null;
  return h("section", {}, h("h2", {}, "Over the steps"),
    h("div", { class: "curves" }, ...found.curves.map((one) => sparkline(one.name, one.values))),
    found.action_strip ? strip(found.action_strip) : null);
}

function strip(actions: (number | null)[]): HTMLElement {
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

const BARS = 200;

function timeline(spans: TimelineSpan[], id: string): HTMLElement | null {
  if (spans.length < 2) return null;
  const end = spans.reduce((latest, one) => Math.max(latest, one.start + one.duration), 0) || 1;
  const kept = spans.slice(0, BARS);
  return h("details", { class: "timeline", open: spans.length <= 40 }, h("summary", {}, h("h2", {}, "Timeline"), ` ${seconds(end / 1000)}`),
    h("ol", {}, ...kept.map((one) => {
      const fill = h("span", { class: `fill of-${one.kind}${one.error ? " failed" : ""}` });
      fill.style.left = `${(100 * one.start) / end}%`;
      fill.style.width = `${Math.max(0.3, (100 * one.duration) / end)}%`;
      const text = `${one.error ? "✗ " : ""}${one.name}`;
      const name = h("span", { class: "name" }, one.step === null ? text : link(episodeAddress(id, one.step), text));
      name.style.paddingLeft = `${one.depth}em`;
      return h("li", {}, name, h("span", { class: "track", "aria-hidden": "true" }, fill), h("span", { class: "time" }, seconds(one.duration / 1000)));
    })),
    spans.length > BARS ? h("p", { class: "note" }, `The first ${BARS} of ${spans.length.toLocaleString("en")} spans.`) : null);
}

function steps(found: Step[]): HTMLElement {
  const list = h("ol", { class: "steps" });
  const more = h("button", { type: "button", click: () => fill(STEPS_AT_ONCE) });
  let shown = 0;
  const fill = (by: number): void => {
    append(list, ...found.slice(shown, shown + by).map((one, place) => step(one, shown + place)));
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

export function step(found: Step, place: number, prefix = "step"): HTMLElement {
  const reward = found.reward_status === "missing" ? "" : found.reward === null ? `✗ reward ${found.reward_status}` : `reward ${number(found.reward)}`;
  return h("li", { id: `${prefix}-${place}`, class: "step", tabindex: -1 },
    h("h3", {}, `Step ${found.index}`, found.agent ? ` of ${found.agent}` : "", h("span", { class: "reward" }, reward)),
    warnings(found.warnings),
    found.observation ? content("observation", found.observation) : null,
    found.frame ? content("frame", found.frame) : null,
    ...found.calls.filter((call) => !isShown(call, found)).map(callBlock),
    ...found.calls.filter((call) => isShown(call, found)).map(callHeader),
    found.action ? content("action", found.action) : null,
    ...found.rewards.map(scoring),
    found.tokens ? lazy(`Tokens (${found.tokens.ids.length.toLocaleString("en")})`, () => tokenView(found.tokens!)) : null,
    found.facts.length ? facts(found.facts) : null);
}

/** Whether the step shows what the model was asked and answered, so that its call is the header of the answer. */
function isShown(call: Call, found: Step): boolean {
  return call.kind !== "execute_tool" && !call.error && !call.input && !call.output && found.action !== null;
}

function callHeader(call: Call): HTMLElement {
  const of = (label: string): string => { const fact = call.facts.find((one) => one.label === label); return fact ? String(fact.value) : ""; };
  const tokens = [of("input tokens") && `${of("input tokens")} tokens in`, of("output tokens") && `${of("output tokens")} out`];
  const words = [call.name, ...tokens, of("seconds") && seconds(Number(of("seconds")))].filter(Boolean).join(", ");
  return h("details", { class: "lazy call-of" }, h("summary", {}, words), call.facts.length ? facts(call.facts) : null);
}

function callBlock(call: Call): HTMLElement {
  return h("div", { class: "call" },
    h("h4", {}, `${call.error ? "✗ " : ""}${call.kind} ${call.name === call.kind ? "" : call.name}`),
    call.error ? h("p", { class: "message bad" }, call.error) : null,
    call.input ? content("arguments", call.input) : null,
    call.output ? content("result", call.output) : null,
    call.facts.length ? facts(call.facts) : null);
}

/** The calls of a grader, folded. */
function graderCalls(name: string, calls: Call[]): HTMLElement | null {
  return calls.length ? lazy(`Calls of ${name} (${calls.length})`, () => h("div", {}, ...calls.map(callBlock))) : null;
}

/** Contents that are made when they are opened. */
function lazy(title: string, make: () => HTMLElement): HTMLElement {
  const details = h("details", { class: "lazy", toggle: () => { if (details.open && details.childElementCount === 1) append(details, make()); } }, h("summary", {}, title));
  return details;
}

export function content(name: string, found: Content): HTMLElement {
  switch (found.type) {
    case "chat":
      return h("div", { class: "chat" }, ...found.messages.map(message));
    case "frame":
      return h("div", { class: "content" }, h("h4", {}, name), h("img", { src: `data:image/png;base64,${found.png}`, alt: `${name}, ${found.width} by ${found.height} pixels`, width: found.width * Math.max(1, Math.floor(160 / found.height)) }));
    default:
      return h("div", { class: `content ${found.type}` }, h("h4", {}, name, found.type === "array" ? h("small", {}, ` shape ${found.shape.join(" × ")}`) : null), folded(found.text));
  }
}

function message(found: Message): HTMLElement {
  return h("div", { class: `message-of ${["user", "assistant", "system", "tool"].includes(found.role) ? found.role : "other"}` },
    h("h4", {}, found.role, found.name ? h("small", {}, ` ${found.name}`) : null),
    found.reasoning ? h("details", { class: "reasoning" }, h("summary", {}, `Reasoning, ${found.reasoning.length.toLocaleString("en")} characters`), folded(found.reasoning)) : null,
    found.text ? folded(found.text) : null,
    ...found.pictures.map((url, place) => h("img", { src: url, alt: `picture ${place + 1} of the message` })),
    ...found.tool_calls.map((call) => h("div", { class: "tool-call" }, h("h5", {}, `calls ${call.name}`), call.arguments ? folded(call.arguments) : null)));
}
