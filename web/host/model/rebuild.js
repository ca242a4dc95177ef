/**
 * Words for running cells again. Pure.
 *
 * @typedef {import('../types.js').Cell} Cell
 * @typedef {import('../types.js').Rebuild} Rebuild
 */
import { durationText } from './clock.js';
import { exitWords, listText } from './words.js';

/** The first line that says something, and how many follow. @param {Cell} cell */
export function cellTitle(cell) {
  const lines = (cell.code ?? '').split('\n').map((line) => line.trim()).filter((line) => line !== '');
  const first = lines.find((line) => !line.startsWith('#')) ?? lines[0] ?? 'empty';
  return { first: first.length > 100 ? first.slice(0, 99) + '…' : first, more: Math.max(0, lines.length - 1) };
}

/** @param {Cell} cell */
export function cellAbout(cell) {
  const took = cell.started_at ? Date.parse(cell.finished_at) - Date.parse(cell.started_at) : null;
  const parts = [`generation ${cell.generation}`];
  if (took !== null) parts.push(`took ${durationText(took)}`);
  if (!cell.succeeded) parts.push(exitWords(cell.exit_reason));
  return parts.join(' · ');
}

/** @param {number} n */
const cellsText = (n) => (n === 1 ? '1 cell' : `${n} cells`);

/** @param {Rebuild} rebuild @returns {{headline: string, lines: string[], bad: boolean}} */
export function rebuildWords(rebuild) {
  const { state, done, total, back, missing } = rebuild;
  const lines = [];
  let headline = `Running again: cell ${Math.min(done + 1, total)} of ${total}`;
  if (state === 'done') headline = `${total === 1 ? 'The cell' : `All ${cellsText(total)}`} ran again`;
  else if (state !== 'running') {
    const good = done - (rebuild.stopped_at ? 1 : 0);
    headline = `Running again stopped: ${good} of ${cellsText(total)} succeeded`;
    lines.push(rebuild.detail);
  }
  if (back.length) lines.push(`Variables back: ${listText(back, 20)}`);
  if (missing.length) lines.push(`${state === 'running' ? 'Still missing' : 'Not back'}: ${listText(missing, 20)}`);
  else if (state === 'done' && back.length) lines.push('Every variable that was lost is back.');
  return { headline, lines: lines.filter((line) => line !== ''), bad: state === 'stopped' || state === 'cut' };
}

/** What a transcript's policy means for its user. @param {import('../types.js').Transcript} transcript */
export function policyWords(transcript) {
  const days = Math.round(transcript.retained_s / 86_400);
  const until = `until ${days <= 1 ? 'a day' : `${days} days`} after the session ends, unless you delete it`;
  if (transcript.policy === 'full') return `Code and output of each run are kept as your own document, on every device, ${until}.`;
  if (transcript.policy === 'hash') return `By your organisation’s policy only hashes of code and output are kept, ${until}.`;
  return 'By your organisation’s policy no code and no output is kept here; a notebook of your own is the only copy.';
}
