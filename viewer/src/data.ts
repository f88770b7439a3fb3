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
  /** The runs of the recording, and the ids of those that the sections are of; none of these means all. */
  runs: { id: string; name: string }[];
  picked: string[];
  /** What is of all runs, and left out while some are picked, as a sentence; empty if nothing is. */
  of_all: string;
  /** What is marked on curves. */
  marks: Mark[];
  /** Columns of the episode browser, in order. */
  columns: Column[];
  /** Ready-made choices of episodes: both tails first. */
  views: EpisodeView[];
}

/** A finding or a version of the policy in a run, with its place on each axis. */
export interface Mark {
  run: string;
  kind: "finding" | "policy";
  name: string;
  text: string;
  severity: string;
  update: number | null;
  places: { [axis: string]: number };
}

export interface Section {
  /** Also the fragment of its address: "run", "returns", "graders", "slices", "updates", "groups", ... */
  id: string;
  title: string;
  blocks: Block[];
}

export type Block = Facts | Table | Lines | Histogram | Scatter | Findings | Note | Step | Message | Call | Reward | Tokens | Curves | Strip | Film | Timeline;

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
  /** Whether it is the table in which runs are picked. */
  picks?: boolean;
}

export interface Column {
  key: string;
  label: string;
  kind: "text" | "long" | "number" | "bars" | "time" | "seconds" | "share" | "state" | "episode" | "episodes" | "group" | "update" | "run";
  /** What the column means, for a tooltip; empty if the label says it. */
  help: string;
}

export interface Lines {
  type: "lines";
  title: string;
  x: Axis;
  y: Axis;
  series: {
    name: string; x: number[]; y: (number | null)[]; low: (number | null)[] | null; high: (number | null)[] | null; dots: boolean;
    /** Ids of the runs that the curve is of. */
    runs?: string[];
  }[];
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
  /** Ids of the runs whose episodes are asked for; none means all. */
  runs: string[];
}

export interface EpisodePage {
  /** Episodes of the recording, and those that match the query. */
  total: number;
  matched: number;
  columns: Column[];
  /** One list of cells per episode, in the order of `columns`; the first column, "episode", is the trace id. */
  rows: Cell[][];
  /** The whole prompt and completion of each row, and what else was said, if they were asked for and the report holds them. */
  texts: string[][] | null;
}

export interface UpdatePage {
  title: string;
  run: string;
  index: number;
  /** Indices of the neighbours in the run. */
  previous: number | null;
  next: number | null;
  sections: Section[];
}

/** Where a page gets its data from: the report's own text, or the server. */
export interface Source {
  /** Whether the data can change while the page is open. */
  live: boolean;
  /** The overview of some runs; of all, where none are given. */
  overview(runs: string[]): Promise<Overview>;
  episodes(query: Query): Promise<EpisodePage>;
  /** Rejects with a sentence for the reader when the page does not hold that episode. */
  episode(id: string): Promise<Episode>;
  update(run: string, index: number): Promise<UpdatePage>;
  /** Ends requests whose answers nobody waits for any more. */
  abandon(): void;
  /** Calls back after each change; only if live. */
  watch(changed: () => void): void;
}

export interface Episode {
  trace_id: string;
  /** One line: environment, task, status. */
  title: string;
  /** The command that shows this episode in a terminal. */
  command: string;
  blocks: (Block | Section)[];
}

export interface Step {
  type: "step";
  index: number;
  /** Its place among the steps. */
  place: number;
  agent: string;
  title: string;
  /** Reward, duration and end. */
  words: string;
  reward: number | null;
  reward_status: string;
  /** In order: what was seen, called and done, then rewards, tokens and facts. */
  blocks: Block[];
}

/** A message of a chat, or an observation, an action, arguments or a result. */
export interface Message {
  type: "message";
  role: string;
  /** Name of a tool or a person; empty if none. */
  name: string;
  /** "observation" or "action" of its step, or what it is of a call. */
  part: string;
  /** Model, tokens and seconds of the call that gave it; its facts are folded. */
  words: string;
  facts: Facts["items"];
  parts: Part[];
  /** The calls of tools that it asks for. */
  blocks: Call[];
}

export interface Part { type: "text" | "reasoning" | "json" | "array" | "picture"; text: string; /** A data URL. */ src?: string }

export interface Call { type: "call"; title: string; words: string; error: string; facts: Facts["items"]; blocks: Message[] }

export interface Reward {
  type: "reward";
  grader: string;
  spec: string;
  value: number | null;
  status: string;
  explanation: string;
  error: string;
  /** Calls of models and tools that belong to no component. */
  blocks: Call[];
  components: {
    /** Parts follow the component that they are part of, one deeper. */
    depth: number;
    blocks: Call[];
    name: string; kind: string; value: number | null; status: string; weight: number | null;
    /** Weighted part of the reward. */
    contribution: number | null;
    explanation: string; error: string;
  }[];
}

/** Curves over the steps: reward, value estimate, and coordinates of observations and actions. */
export interface Curves { type: "curves"; items: { name: string; values: (number | null)[] }[] }

/** Discrete actions of each step. */
export interface Strip { type: "strip"; actions: (number | null)[] }

/** Places of the steps that have a picture. */
export interface Film { type: "film"; places: number[] }

export interface Timeline { type: "timeline"; spans: TimelineSpan[] }

export interface TimelineSpan { name: string; kind: string; depth: number; start: number; duration: number; error: boolean; step: number | null }

/** A block of tokens; each array is aligned with `ids`, null where it has no value for a token. */
export interface Tokens {
  type: "tokens";
  /** What there is of them; all there is without ids. */
  words: string;
  /** Prompt tokens are dimmed; the rest are the completion. */
  prompt_length: number;
  ids: number[];
  /** Text of each token, null where it is unknown; null when no tokenizer is known: the ids are shown. */
  pieces: (string | null)[] | null;
  /** By name: logprobs, ref_logprobs, trainer_logprobs, entropies, advantages, rewards, values, masks, loss_weights. A mask of 0 dims the token. */
  values: { [name: string]: (number | null)[] };
  note: string;
}
