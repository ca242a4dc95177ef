/** Where code is written and sent. The draft survives a reload of the tab; the gateway never sees it before it is run. */
import { button, h, setText } from '../dom.js';
import { codeEditor } from './editor.js';

/** @param {import('../app.js').App} app */
export function composer(app) {
  const run = h('button', { type: 'submit', class: 'primary' }, 'Run');
  const hint = h('p', { class: 'muted small', id: 'code-hint' }, 'Shift+Enter runs · Esc leaves the editor · ? for help');
  const state = h('p', { class: 'small composer-state' });
  let draftOf = '';
  let sending = false;
  const draftKey = () => `draft:${draftOf}`;

  const send = async () => {
    const code = editor.area.value;
    if (sending || !code.trim() || editor.area.disabled) return;
    sending = true;
    run.disabled = true;
    // Taken away only once the gateway has it, so that a refusal loses no code.
    if (await app.run(code)) {
      if (editor.area.value === code) editor.set('');
      sessionStorage.removeItem(draftKey());
      scrollTo({ top: document.documentElement.scrollHeight });
    }
    sending = false;
    run.disabled = false;
  };
  const editor = codeEditor({
    id: 'code', label: 'Code', describedBy: 'code-hint',
    onRun: () => void send(),
    onLeave: () => run.focus(),
    onInput: () => {
      sessionStorage.setItem(draftKey(), editor.area.value);
      app.typing();
    },
  });
  const clear = button('Clear', () => {
    editor.set('');
    sessionStorage.removeItem(draftKey());
    editor.area.focus();
  }, { class: 'quiet' });
  const element = h('form', {
    class: 'composer', 'aria-label': 'Run code',
    on: { submit: (/** @type {Event} */ event) => { event.preventDefault(); void send(); } },
  }, editor.area, h('div', { class: 'composer-row' }, run, clear, hint, state));

  app.on(['session', 'route'], () => {
    const { session } = app;
    if (!session) return;
    if (session.session_id !== draftOf) {
      draftOf = session.session_id;
      editor.set(sessionStorage.getItem(draftKey()) ?? '');
    }
    const ended = session.state === 'ended';
    if (editor.area.disabled !== ended) editor.area.disabled = run.disabled = ended;
    setText(state, stateLine(session));
  });
  return {
    element,
    /** @param {string} code */
    load(code) {
      editor.set(code);
      sessionStorage.setItem(draftKey(), code);
      editor.area.focus();
    },
  };
}

/** What a run would meet. @param {import('../types.js').Session} session */
function stateLine(session) {
  if (session.state === 'ended') return 'This session has ended; it can run nothing any more.';
  if (session.state === 'dormant') return 'Asleep: the next run opens a new sandbox.';
  if (session.state === 'draining') return 'Saving files; a run now waits for a new sandbox.';
  if (session.state === 'quarantined') return 'Files wait to be saved; running is not possible until then.';
  if (session.state === 'starting') return 'A sandbox is starting.';
  return session.busy ? 'Something runs; a new run waits its turn.' : '';
}
