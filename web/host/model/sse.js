/**
 * A server-sent events parser: text cut anywhere in, events out. Pure.
 *
 * Of its own because the page needs what EventSource hides: comments (to notice a silent connection) and HTTP statuses.
 *
 * @typedef {{id: number | null, event: string, data: string}} ServerEvent
 */
export class EventParser {
  /** Parts of a line that has not ended; joined once, so that a 10 MB event costs no repeated copying. @type {string[]} */
  #partial = [];
  #id = '';
  #hasId = false;
  #event = '';
  /** @type {string[]} */
  #data = [];

  /** @param {string} chunk @returns {Generator<ServerEvent>} */
  *feed(chunk) {
    let from = 0;
    for (let end = chunk.indexOf('\n', from); end !== -1; end = chunk.indexOf('\n', from)) {
      let line = chunk.slice(from, end);
      from = end + 1;
      if (this.#partial.length) {
        line = this.#partial.join('') + line;
        this.#partial = [];
      }
      if (line.endsWith('\r')) line = line.slice(0, -1);
      const event = this.#line(line);
      if (event) yield event;
    }
    if (from < chunk.length) this.#partial.push(chunk.slice(from));
  }

  /** @param {string} line @returns {ServerEvent | null} */
  #line(line) {
    if (line === '') {
      const data = this.#data.join('\n');
      const some = this.#data.length > 0;
      const id = this.#hasId && /^\d+$/.test(this.#id) ? Number(this.#id) : null;
      const event = this.#event || 'message';
      this.#data = [];
      this.#event = '';
      this.#hasId = false;
      return some ? { id, event, data } : null;
    }
    if (line.startsWith(':')) return null;
    const colon = line.indexOf(':');
    const field = colon === -1 ? line : line.slice(0, colon);
    let value = colon === -1 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'data') this.#data.push(value);
    else if (field === 'event') this.#event = value;
    else if (field === 'id') {
      this.#id = value;
      this.#hasId = true;
    }
    return null;
  }
}
