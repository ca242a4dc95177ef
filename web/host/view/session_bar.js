/** The session's line: what it is, how it is, how long it has left, and what can be done. */
import { api } from '../api.js';
import { button, confirmDialog, h, setAttr, setText } from '../dom.js';
import { countdowns } from '../model/clock.js';
import { endWords, listText, stateWords, tierWords, variableText } from '../model/words.js';

/** Below this a countdown is drawn as urgent. */
const URGENT_MS = 60_000;

/** @param {import('../app.js').App} app */
export function sessionBar(app) {
  const name = h('h1', {});
  const state = h('span', { class: 'chip state' });
  const profile = h('span', { class: 'chip' });
  const generation = h('span', { class: 'chip', title: 'Counts the lives of this session’s variables: it grows whenever they are lost' });
  const idle = timer('Idle', 'idle');
  const max = timer('Maximum', 'max');
  const id = () => app.session?.session_id ?? '';

  const keep = button('Keep alive', () => void app.attempt(api.keepAlive(id())).then((s) => app.adopt(s)));
  const interrupt = button('Interrupt', () => void app.attempt(api.interrupt(id())));
  const restart = button('Restart', () => void restartKernel(app));
  const recycle = button('End sandbox now, keep files', () => void recycleSandbox(app));
  const element = h('header', { class: 'session-bar' },
    h('div', { class: 'session-what' }, name, h('div', { class: 'chips' }, state, profile, generation)),
    h('div', { class: 'timers' }, idle.element, max.element),
    h('div', { class: 'actions' }, keep, interrupt, restart, recycle));

  app.on(['session', 'tick', 'route'], () => {
    const { session } = app;
    element.hidden = !session;
    if (!session) return;
    setText(name, session.name || 'Untitled');
    const why = session.state === 'ended' || session.state === 'dormant' ? session.reason : '';
    setText(state, stateWords(session) + (why ? `: ${endWords(why)}` : ''));
    setAttr(state, 'data-state', session.busy && session.state === 'active' ? 'running' : session.state);
    setAttr(state, 'title', session.quarantine?.why ? `The store does not take them: ${session.quarantine.why}` : null);
    setText(profile, session.profile === session.tier ? tierWords(session.tier) : `${session.profile} · ${tierWords(session.tier)}`);
    setText(generation, `generation ${session.generation}`);
    const { idle: idleNow, max: maxNow } = countdowns(session, app.now);
    idle.draw(idleNow);
    max.draw(maxNow);
    const live = session.state === 'active';
    keep.disabled = !live;
    interrupt.disabled = !live || !session.busy;
    restart.disabled = session.state === 'ended' || session.state === 'draining';
    recycle.disabled = !live;
  });
  return element;
}

/** @param {string} label @param {string} kind */
function timer(label, kind) {
  const text = h('span', { class: 'timer-text', role: 'timer', 'aria-label': label, data: { timer: kind } });
  const sand = h('span', { class: 'timer-sand' });
  const element = h('div', { class: 'timer' }, h('span', { class: 'timer-label', 'aria-hidden': 'true' }, label), text,
    h('span', { class: 'timer-track', 'aria-hidden': 'true' }, sand));
  return {
    element,
    /** @param {{left: number | null, text: string, fraction: number | null}} now */
    draw(now) {
      setText(text, now.text);
      sand.style.setProperty('--left', String(now.fraction ?? 0));
      element.classList.toggle('urgent', now.left !== null && now.left < URGENT_MS);
      element.classList.toggle('off', now.fraction === null);
    },
  };
}

/** What goes and what stays, for the question before. @param {import('../app.js').App} app @param {boolean} files */
function losses(app, files) {
  const variables = app.session?.variables ?? [];
  const undeclared = (app.files?.live ? app.files.files : []).filter((f) => !f.declared).map((f) => f.path);
  return [
    variables.length ? `Variables that will be lost: ${listText(variables.map(variableText))}` : 'All variables will be lost.',
    files && undeclared.length ? `Files that will be lost: ${listText(undeclared)}` : null,
  ];
}

/** @param {import('../app.js').App} app */
export async function recycleSandbox(app) {
  const { session } = app;
  if (!session) return;
  const sure = await confirmDialog({
    title: 'End the sandbox now?',
    lines: [...losses(app, true), 'Kept files are saved first and come back with the next run.'],
    confirm: 'End sandbox, keep files',
  });
  if (sure !== null) app.adopt(await app.attempt(api.recycle(session.session_id)));
}

/** @param {import('../app.js').App} app */
export async function restartKernel(app) {
  const { session } = app;
  if (!session) return;
  const sure = await confirmDialog({
    title: 'Restart the kernel?',
    lines: [...losses(app, false), 'Files stay where they are, and the maximum lifetime goes on counting.'],
    confirm: 'Restart',
  });
  if (sure !== null) app.adopt(await app.attempt(api.restart(session.session_id)));
}
