/**
 * One session's event stream over fetch: reads, resumes after the last event seen, and says how the connection is.
 *
 * The loop yields to the page while it works off a backlog, so a replay of megabytes leaves typing and scrolling alive.
 *
 * @typedef {import('./types.js').StreamEvent} StreamEvent
 * @typedef {'connecting' | 'live' | 'reconnecting' | 'ended' | 'unauthenticated'} Connection
 *
 * @typedef {object} Options
 * @property {(after: number) => string} url
 * @property {() => number} after  the number of the last event applied
 * @property {(id: number | null, event: StreamEvent) => void} onEvent
 * @property {(connection: Connection) => void} onConnection
 */
import { EventParser } from './model/sse.js';

/** The gateway sends a comment every 15 s; silence for three of them means a dead connection that TCP has not noticed. */
const SILENCE_MS = 45_000;
const SLICE_MS = 12;
const BACKOFF_MS = [250, 500, 1000, 2000, 4000, 8000];

export class EventStream {
  #options;
  #stopped = false;
  #abort = new AbortController();
  #attempt = 0;
  /** Wakes the wait before the next attempt. @type {(() => void) | null} */
  #wake = null;

  /** @param {Options} options */
  constructor(options) {
    this.#options = options;
    void this.#loop();
  }

  stop() {
    this.#stopped = true;
    this.#abort.abort();
    this.#wake?.();
  }

  /** The network is back, or the page is in front again: do not wait for the backoff. */
  retryNow() {
    this.#wake?.();
  }

  async #loop() {
    this.#options.onConnection('connecting');
    while (!this.#stopped) {
      const end = await this.#connect();
      if (this.#stopped) return;
      if (end) {
        this.#options.onConnection(end);
        return;
      }
      this.#options.onConnection('reconnecting');
      const wait = /** @type {number} */ (BACKOFF_MS[Math.min(this.#attempt++, BACKOFF_MS.length - 1)]);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, wait * (0.8 + Math.random() * 0.4));
        this.#wake = () => {
          clearTimeout(timer);
          resolve(null);
        };
      });
      this.#wake = null;
    }
  }

  /** A fault in the page must not look like a broken connection, nor stop the events after it. @param {number | null} id @param {StreamEvent} event */
  #deliver(id, event) {
    try {
      this.#options.onEvent(id, event);
    } catch (error) {
      console.error('event', id, event.type, error);
    }
  }

  /** @returns {Promise<Connection | null>} why not to come back, or null to come back */
  async #connect() {
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    let timer = setTimeout(() => this.#abort.abort(), SILENCE_MS);
    try {
      const response = await fetch(this.#options.url(this.#options.after()), {
        headers: { Accept: 'text/event-stream' }, credentials: 'same-origin', cache: 'no-store', signal,
      });
      if (response.status === 401) return 'unauthenticated';
      if (response.status === 404 || response.status === 410) return 'ended';
      if (!response.ok || !response.body) return null;
      this.#options.onConnection('live');
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      const parser = new EventParser();
      let sliceStart = performance.now();
      for (;;) {
        const { done, value } = await reader.read();
        clearTimeout(timer);
        if (done) return null;
        timer = setTimeout(() => this.#abort.abort(), SILENCE_MS);
        for (const { id, data } of parser.feed(decoder.decode(value, { stream: true }))) {
          /** @type {StreamEvent} */
          const event = JSON.parse(data);
          if (event.type === 'bye') {
            if (event.code === 'unauthenticated') return 'unauthenticated';
            if (event.code === 'session_ended') return 'ended';
            return null;
          }
          this.#attempt = 0;
          this.#deliver(id, event);
          if (performance.now() - sliceStart > SLICE_MS) {
            await new Promise((resolve) => setTimeout(resolve));
            sliceStart = performance.now();
            if (this.#stopped) return null;
          }
        }
      }
    } catch {
      // Aborted, refused or cut: the loop comes back and resumes where it was.
      return null;
    } finally {
      clearTimeout(timer);
      if (!signal.aborted) this.#abort.abort();
    }
  }
}
