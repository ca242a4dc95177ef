/**
 * The outputs of one run, built message by message. Pure: no DOM, no clock.
 *
 * @typedef {{kind: 'stream', name: string, text: StreamText, version: number}} StreamOutput
 * @typedef {{kind: 'rich', data: Record<string, unknown>, metadata: Record<string, any>, displayId: string | null,
 *   count: number | null, version: number}} RichOutput
 * @typedef {{kind: 'error', name: string, value: string, traceback: string[], version: number}} ErrorOutput
 * @typedef {{kind: 'input', prompt: string, password: boolean, answered: boolean, value: string | null, version: number}} InputOutput
 * @typedef {StreamOutput | RichOutput | ErrorOutput | InputOutput} Output
 */
import { StreamText } from './text.js';

export class Outputs {
  /** @type {Output[]} */
  list = [];
  /** `clear_output(wait=True)`: the next output replaces all before it, so that an animation does not flicker. */
  #clearFirst = false;

  #add(/** @type {Output} */ output) {
    if (this.#clearFirst) this.clear(false);
    this.answered();
    this.list.push(output);
    return output;
  }

  /** @param {string} name @param {string} text */
  stream(name, text) {
    const last = this.#clearFirst ? undefined : this.list.at(-1);
    if (last && last.kind === 'stream' && last.name === name) {
      last.text.append(text);
      last.version++;
      return;
    }
    const output = { kind: /** @type {const} */ ('stream'), name, text: new StreamText(), version: 0 };
    output.text.append(text);
    this.#add(output);
  }

  /**
   * @param {Record<string, unknown>} data @param {Record<string, any>} metadata
   * @param {string | null} displayId @param {number | null} count the result's number, for `execute_result` only
   */
  rich(data, metadata, displayId, count) {
    return /** @type {RichOutput} */ (this.#add({ kind: 'rich', data, metadata, displayId, count, version: 0 }));
  }

  /** @param {string} name @param {string} value @param {string[]} traceback */
  error(name, value, traceback) {
    this.#add({ kind: 'error', name, value, traceback, version: 0 });
  }

  /** @param {string} prompt @param {boolean} password */
  input(prompt, password) {
    this.#add({ kind: 'input', prompt, password, answered: false, value: null, version: 0 });
  }

  /** The question that waits for an answer, if any. */
  get question() {
    const last = this.list.at(-1);
    return last && last.kind === 'input' && !last.answered ? last : null;
  }

  /** Whatever comes after a question shows that it was answered, here or in another window. @param {string | null} [value] */
  answered(value = null) {
    const question = this.question;
    if (!question) return;
    question.answered = true;
    question.value = value;
    question.version++;
  }

  /** @param {boolean} wait */
  clear(wait) {
    if (wait) this.#clearFirst = true;
    else {
      this.#clearFirst = false;
      this.list = [];
    }
  }
}
