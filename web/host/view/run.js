/** One run: its code, how it stands, its outputs, how it ended. */
import { api } from '../api.js';
import { button, fill, h, setText } from '../dom.js';
import { durationText, elapsedText } from '../model/clock.js';
import { exitWords, endWords, headlineWords, listText, sizeText } from '../model/words.js';
import { codeBlock } from './code.js';
import { outputsView } from './outputs.js';
import { restartKernel } from './session_bar.js';

/** An interrupt that has done nothing for this long may never do anything. */
const STUBBORN_MS = 3000;

/** @param {import('../app.js').App} app @param {import('../model/timeline.js').Run} run @param {{load: (code: string) => void}} editor */
export function runView(app, run, editor) {
  const count = h('span', { class: 'run-count' });
  const state = h('span', { class: 'run-state' });
  const badges = h('span', { class: 'badges' });
  const id = () => app.session?.session_id ?? '';
  let interruptedAt = 0;

  const stop = button('Interrupt', () => {
    interruptedAt = performance.now();
    void app.attempt(api.cancel(id(), run.executionId));
  });
  const force = button('Force restart (loses variables)', () => void restartKernel(app), { class: 'danger' });
  const again = button('Run again', () => void app.run(run.code ?? ''), { class: 'quiet' });
  const edit = button('Edit', () => editor.load(run.code ?? ''), { class: 'quiet', title: 'Put this code into the editor' });
  const stored = button('Show what was stored', () => void app.loadStored(run.executionId));
  const fresh = h('p', { class: 'fresh' });
  const code = h('div', { class: 'run-code' });
  const outputs = outputsView(app, run.outputs, 'this run', (value) => void app.answer(run, value), () => run.source !== 'jupyter');
  const end = h('div', { class: 'run-end' });
  const element = h('li', { class: 'run' },
    h('article', {},
      h('div', { class: 'run-head' }, count, state, badges, h('span', { class: 'run-actions' }, stop, force, again, edit)),
      fresh, code, outputs.element, end));
  /** @type {string | null | undefined} */
  let shownCode;

  const tick = () => {
    setText(state, stateText(app, run));
    const running = run.state === 'running';
    force.hidden = !(running && interruptedAt && performance.now() - interruptedAt > STUBBORN_MS);
  };
  return {
    element,
    tick,
    /** @param {boolean} earlier */
    draw(earlier) {
      element.dataset.state = run.state;
      element.dataset.exit = run.exitReason ?? '';
      element.classList.toggle('earlier', earlier);
      setText(count, run.count === null ? '[ ]' : `[${run.count}]`);
      fill(badges, earlier && h('span', { class: 'badge' }, 'earlier sandbox'), run.source === 'jupyter' && h('span', { class: 'badge' }, 'from a Jupyter client'));
      stop.hidden = run.state === 'finished';
      setText(stop, run.state === 'queued' ? 'Cancel' : 'Interrupt');
      again.hidden = edit.hidden = !run.code;
      if (run.state === 'finished') interruptedAt = 0;
      if (shownCode !== run.code) {
        shownCode = run.code;
        fill(code, run.code === null ? h('p', { class: 'muted small' }, run.state === 'queued' ? 'The code is shown once it runs.' : 'The code is no longer kept.') : codeBlock(run.code));
      }
      drawFresh(app, run, fresh);
      outputs.swap(run.outputs);
      outputs.draw();
      fill(end, endLines(run), run.partial && run.state === 'finished' && h('p', {}, 'Its live output is no longer kept. ', stored));
      tick();
    },
  };
}

/** @param {import('../app.js').App} app @param {import('../model/timeline.js').Run} run */
function stateText(app, run) {
  if (run.state === 'queued') {
    const position = app.timeline.position(run) ?? 1;
    return position === 1 ? 'Waiting, next in line' : `Waiting, number ${position} in line`;
  }
  if (run.state === 'running') {
    const took = run.startedAt ? app.now - Date.parse(run.startedAt) : NaN;
    const waits = run.outputs.question ? 'Waits for input' : 'Running';
    return Number.isFinite(took) ? `${waits} · ${elapsedText(took)}` : waits;
  }
  const words = run.exitReason === 'ok' || !run.exitReason ? 'Done' : exitWords(run.exitReason);
  return run.durationMs === null ? words : `${words} · ${durationText(run.durationMs)}`;
}

/** The first run in a new sandbox says so, and what it cannot count on. @param {import('../app.js').App} app @param {import('../model/timeline.js').Run} run @param {HTMLElement} fresh */
function drawFresh(app, run, fresh) {
  const divider = run.fresh ? app.timeline.items.find((item) => item.key === run.fresh) : undefined;
  fresh.hidden = divider?.kind !== 'divider';
  if (divider?.kind !== 'divider') return;
  const names = divider.lost.map((v) => v.name);
  const where = divider.headline === 'recycled' ? 'Runs in a new sandbox' : 'Runs with no variables from before';
  const why = divider.reason ? endWords(divider.reason) : headlineWords(divider.headline).toLowerCase();
  setText(fresh, names.length ? `${where}. Variables lost: ${listText(names)} (${why}).` : `${where} (${why}).`);
}

/** @param {import('../model/timeline.js').Run} run */
function endLines(run) {
  const lines = [];
  if (run.state === 'finished' && run.exitReason === 'dependency_missing') {
    lines.push(h('p', {}, 'Packages are fixed in the sandbox image; ask whoever runs the gateway to add it.'));
  }
  if (run.truncated && (run.truncated.bytes_dropped || run.truncated.messages_dropped)) {
    lines.push(h('p', { class: 'cut' }, `Output past the limit was dropped: ${sizeText(run.truncated.bytes_dropped)}, ${run.truncated.messages_dropped} messages.`));
  }
  if (run.sensitive.length) {
    const kinds = run.sensitive.map((kind) => kind.replaceAll('_', ' '));
    lines.push(h('p', { class: 'cut' }, `This output looks like it contains: ${listText(kinds)}. Look at it before you pass it on.`));
  }
  if (run.leftOut) lines.push(h('p', { class: 'cut' }, `From the transcript, which did not keep ${sizeText(run.leftOut)} of its output.`));
  return lines;
}
