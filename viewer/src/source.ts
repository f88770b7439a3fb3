/** Where data comes from: the report's own text, or the server. */

import type { Cell, Episode, EpisodePage, Overview, Query, Source, UpdatePage } from "./data";
import { merged } from "./picking";
import { run } from "./query";

interface Embedded {
  overview: Overview;
  rows: Cell[][];
  /** Base64 of gzip of a JSON object of episodes by trace id. */
  chunks: string[];
  chunk_of: { [trace_id: string]: number };
  /** Base64 of gzip of a JSON list of the texts of each row; empty if they would be too large. */
  texts: string;
  /** Base64 of gzip of a JSON object of pages of updates by run and index; empty if they would be too large. */
  updates: string;
  /** Overviews of some runs: what differs from that of all, as base64 of gzip of JSON. */
  parts: { runs: string[]; overview: string }[];
}

export function source(): Source {
  const embedded = document.getElementById("mttp-report");
  if (embedded) return new Report(JSON.parse(embedded.textContent ?? "{}") as Embedded);
  const meta = document.querySelector('meta[name="mttp-view"]');
  return new Server(meta?.getAttribute("content") ?? "api/");
}

class Report implements Source {
  readonly live = false;
  private chunks = new Map<number, Promise<{ [id: string]: Episode }>>();
  private texts: Promise<string[][]> | null = null;
  private updates: Promise<{ [address: string]: UpdatePage }> | null = null;

  constructor(private data: Embedded) {}

  async overview(runs: string[]): Promise<Overview> {
    if (!runs.length) return this.data.overview;
    const parts = await Promise.all(cover(runs, this.data.parts).map((part) => unpack<Partial<Overview>>(part.overview)));
    return merged(this.data.overview, runs, parts);
  }

  async update(run: string, index: number): Promise<UpdatePage> {
    this.updates ??= this.data.updates ? unpack(this.data.updates) : Promise.resolve({});
    const found = (await this.updates)[`${run} ${index}`];
    if (!found) throw new Error(`This report does not hold update ${index} of the run ${run}.`);
    return found;
  }

  async episodes(query: Query): Promise<EpisodePage> {
    if ((query.search || query.texts) && this.data.texts) this.texts ??= unpack<string[][]>(this.data.texts);
    return run(query, this.data.overview.columns, this.data.rows, ((query.search || query.texts) && (await this.texts)) || []);
  }

  async episode(id: string): Promise<Episode> {
    const place = this.data.chunk_of[id];
    if (place === undefined) {
      const command = `mttp show ${this.data.overview.sources.join(" ")} --episode ${id.slice(0, 8)}`;
      throw new Error(`This report does not hold episode ${id}: it would have become too large. In a terminal: ${command}`);
    }
    let chunk = this.chunks.get(place);
    if (!chunk) {
      chunk = unpack<{ [id: string]: Episode }>(this.data.chunks[place] ?? "");
      this.chunks.set(place, chunk);
    }
    const found = (await chunk)[id];
    if (!found) throw new Error(`This report does not hold episode ${id}.`);
    return found;
  }

  abandon(): void {}

  watch(): void {}
}

/** The fewest parts that these runs make together: those of a name, then single ones. */
function cover(runs: string[], parts: Embedded["parts"]): Embedded["parts"] {
  const left = new Set(runs);
  return [...parts].sort((one, other) => other.runs.length - one.runs.length).filter((part) => {
    if (!part.runs.every((id) => left.has(id))) return false;
    part.runs.forEach((id) => left.delete(id));
    return true;
  });
}

async function unpack<T>(packed: string): Promise<T> {
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as T;
}

class Server implements Source {
  readonly live = true;
  private waiting = new AbortController();

  constructor(private root: string) {}

  overview(runs: string[]): Promise<Overview> {
    return this.ask(`overview?${new URLSearchParams(runs.map((id) => ["run", id]))}`, { signal: this.waiting.signal });
  }

  update(run: string, index: number): Promise<UpdatePage> {
    return this.ask(`update?${new URLSearchParams({ run, index: String(index) })}`, { signal: this.waiting.signal });
  }

  episodes(query: Query): Promise<EpisodePage> {
    return this.ask("episodes", {
      method: "POST",
      signal: this.waiting.signal,
      headers: { "content-type": "application/json" },
      body: JSON.stringify(query),
    });
  }

  episode(id: string): Promise<Episode> {
    return this.ask(`episodes/${encodeURIComponent(id)}`, { signal: this.waiting.signal });
  }

  abandon(): void {
    this.waiting.abort();
    this.waiting = new AbortController();
  }

  /** Asks for the next version until it is there; waits after a failure. */
  async watch(changed: () => void): Promise<void> {
    let version = -1;
    for (;;) {
      try {
        const found = await this.ask<{ version: number }>(`version?after=${version}`);
        if (version >= 0 && found.version > version) changed();
        version = found.version;
        await new Promise((resolve) => setTimeout(resolve, 1000)); // while a file is read, there is always a newer one
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 3000));
      }
    }
  }

  private async ask<T>(path: string, options?: RequestInit): Promise<T> {
    const response = await fetch(this.root + path, options);
    if (response.ok) return (await response.json()) as T;
    const refusal = (await response.json().catch(() => ({}))) as { error?: string };
    throw new Error(refusal.error ?? `The server answered ${response.status}.`);
  }
}
