/**
 * A traceback folded to what a reader needs first: the last frame. Pure.
 */
import { stripAnsi } from './ansi.js';

/** Where a frame begins in IPython's and in Python's own form. */
const FRAME = /^(?:Cell In ?\[|File |Input In|<ipython-input|\s*File "|[/~<][^\n]*:\d+, in |[/~][^\n]* in )/;
const SEPARATOR = /^[-\s]*$/;

/**
 * @param {string[]} traceback the parts as the kernel sends them
 * @returns {{last: string, full: string, frames: number}} `last`: '' when there is nothing to fold away
 */
export function foldTraceback(traceback) {
  const full = traceback.join('\n');
  const frames = traceback.filter((part) => FRAME.test(stripAnsi(part).trimStart()) && !SEPARATOR.test(stripAnsi(part)));
  if (frames.length === 0) return { last: '', full, frames: 0 };
  return { last: /** @type {string} */ (frames.at(-1)).replace(/\n+$/, ''), full, frames: frames.length };
}
