/** The data of a page, as Python makes it: the sections of the overview, rows of episodes, and episodes in full. */

/** Numbers that are not finite are null, with the status beside them where one was recorded. */
export type Cell = string | number | boolean | null;

export interface Overview {
  title: string;
  /** Paths or addresses of the recordings. */
  sources: string[];
  /** Version of mttp that made the page. */
  version: string;
  /** Time at which a report was made, in milliseconds since the Unix epoch. */
  made: number;
  /** How episodes were chosen, when a report does not hold all; empty when it does. */
  sampling: string;
  sections: Section[];
  /** Columns of the episode browser, in order. */
  columns: Column[];
  /** Ready-made choices of episodes: both tails first. */
  views: EpisodeView[];
}

export interface Section {
  /** Also the fragment of its address: "run", "returns", "graders", "slices", "updates", "groups", ... */
  id: string;
  title: string;
  blocks: Block[];
}

export type Block = Facts | Table | Lines | Histogram | Scatter | Findings | Note;

export interface Note { type: "note"; text: string; state: State }

export type State = "good" | "bad" | "warn" | "plain";

export interface Facts { type: "facts"; items: { label: string; value: Cell; detail: string; state: State }[] }

export interface Table {
  type: "table";
  title: string;
  columns: Column[];
  /** One list of cells per row. A cell of an episode column is a trace id or null; of an episodes column, trace ids joined by spaces. */
  rows: Cell[][];
  note: string;
  /** Whether the rows are shown on request only. */
  folded: boolean;
}

export interface Column {
  key: string;
  label: string;
  kind: "text" | "long" | "number" | "time" | "seconds" | "share" | "state" | "episode" | "episodes" | "group" | "run";
  /** What the column means, for a tooltip; empty if the label says it. */
  help: string;
}

export interface Lines {
  type: "lines";
  title: string;
  x: Axis;
  y: Axis;
  series: { name: string; x: number[]; y: (number | null)[]; low: (number | null)[] | null; high: (number | null)[] | null; dots: boolean }[];
  /** Method and n: how the curve and its band were computed. */
  note: string;
  /** The same curves over several axes, the first of them as above; absent where there is one. */
  views?: LinesView[];
}

export interface LinesView { axis: string; x: Axis; series: Lines["series"]; note: string }

export interface Axis { label: string; kind: "number" | "time" }

export interface Histogram {
  type: "histogram";
  title: string;
  x: Axis;
  /** One more than there are counts. */
  edges: number[];
  series: { name: string; counts: number[] }[];
  note: string;
}

export interface Scatter {
  type: "scatter";
  title: string;
  x: Axis;
  y: Axis;
  /** The trace id of each point; a click opens the episode. */
  series: { name: string; x: number[]; y: number[]; episodes: string[] }[];
  note: string;
}

export interface Findings {
  type: "findings";
  items: { kind: string; severity: string; state: State; evidence: string; advice: string; episodes: string[] }[];
  note: string;
}

export interface EpisodeView {
  name: string;
  help: string;
  filters: Filter[];
  sort: string;
  descending: boolean;
}

export interface Filter { column: string; operator: "=" | "!=" | "<" | "<=" | ">" | ">=" | "~"; value: string }

export interface Query {
  /** Words that must all occur in the text columns, or in the whole texts of which they show the ends; empty for every episode. */
  search: string;
  filters: Filter[];
  sort: string;
  descending: boolean;
  offset: number;
  limit: number;
  /** Whether the whole texts of the rows are asked for. */
  texts: boolean;
}

export interface EpisodePage {
  /** Episodes of the recording, and those that match the query. */
  total: number;
  matched: number;
  /** One list of cells per episode, in the order of `Overview.columns`; the first column, "episode", is the trace id. */
  rows: Cell[][];
  /** The whole prompt and completion of each row, if they were asked for and the report holds them. */
  texts: string[][] | null;
}

/** Where a page gets its data from: the report's own text, or the server. */
export interface Source {
  /** Whether the data can change while the page is open. */
  live: boolean;
  overview(): Promise<Overview>;
  episodes(query: Query): Promise<EpisodePage>;
  /** Rejects with a sentence for the reader when the page does not hold that episode. */
  episode(id: string): Promise<Episode>;
  /** Ends requests whose answers nobody waits for any more. */
  abandon(): void;
  /** Calls back after each change; only if live. */
  watch(changed: () => void): void;
}

export interface Episode {
  trace_id: string;
  /** One line: environment, task, status. */
  title: string;
  facts: Facts["items"];
  /** Errors, faults, omissions and problems of the recording: what a reader must know first. */
  warnings: string[];
  /** Scorings of the whole episode. */
  rewards: Scoring[];
  steps: Step[];
  /** Spans in order of start. */
  timeline: TimelineSpan[];
  /** The group with every member's reward and advantage. */
  group: { id: string; members: { episode: string; reward: number | null; status: string; advantage: number | null }[]; note: string } | null;
  /** Curves over steps: reward, value estimate, and up to eight coordinates of an array observation. */
  curves: { name: string; values: (number | null)[] }[];
  /** Discrete actions of each step, shown as a strip; null when actions are not discrete. */
  action_strip: (number | null)[] | null;
  /** Annotations, as `kind: value`. */
  annotations: string[];
  /** The command that shows this episode in a terminal. */
  command: string;
}

export interface Step {
  index: number;
  agent: string | null;
  /** Only what is new since the step before, for a chat. */
  observation: Content | null;
  /** The rendered picture before the action, as a message. */
  frame: Content | null;
  action: Content | null;
  reward: number | null;
  reward_status: string;
  facts: Facts["items"];
  warnings: string[];
  rewards: Scoring[];
  calls: Call[];
  tokens: Tokens | null;
}

export interface Call { name: string; kind: string; facts: Facts["items"]; error: string; input: Content | null; output: Content | null }

export type Content =
  | { type: "chat"; messages: Message[] }
  | { type: "text"; text: string }
  | { type: "array"; shape: number[]; text: string }
  | { type: "json"; text: string }
  /** A picture; base64 of a PNG. */
  | { type: "frame"; png: string; width: number; height: number };

export interface Message {
  role: string;
  /** Name of a tool or a person; empty if none. */
  name: string;
  reasoning: string;
  text: string;
  /** Data URLs. */
  pictures: string[];
  tool_calls: { name: string; arguments: string }[];
}

export interface Scoring {
  grader: string;
  spec: string;
  value: number | null;
  status: string;
  explanation: string;
  error: string;
  /** Calls of models and tools that belong to no component. */
  calls: Call[];
  components: {
    /** Parts follow the component that they are part of, one deeper. */
    depth: number;
    calls: Call[];
    name: string; kind: string; value: number | null; status: string; weight: number | null;
    /** Weighted part of the reward. */
    contribution: number | null;
    explanation: string; error: string;
  }[];
}

export interface TimelineSpan { name: string; kind: string; depth: number; start: number; duration: number; error: boolean; step: number | null }

/** A block of tokens; each array is aligned with `ids`, null where it has no value for a token. */
export interface Tokens {
  /** Prompt tokens are dimmed; the rest are the completion. */
  prompt_length: number;
  ids: number[];
  /** Text of each token; null when no tokenizer is known: the ids are shown. */
  pieces: string[] | null;
  /** By name: logprobs, ref_logprobs, trainer_logprobs, entropies, advantages, rewards, values, masks, loss_weights. A mask of 0 dims the token. */
  values: { [name: string]: (number | null)[] };
  note: string;
}
