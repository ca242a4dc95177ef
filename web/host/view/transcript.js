/** What is kept of the session's code and output: said, taken away as a notebook, deleted. */
import { api } from '../api.js';
import { button, confirmDialog, fill, h, setText } from '../dom.js';
import { policyWords } from '../model/rebuild.js';
import { sizeText } from '../model/words.js';

/** @param {import('../app.js').App} app */
export function transcriptPanel(app) {
  const held = h('p', { class: 'muted small' });
  const words = h('p', { class: 'small' });
  const actions = h('div', { class: 'transcript-actions' });
  let shown = '';
  app.on(['transcript', 'session', 'route'], () => {
    const { session, transcript } = app;
    const signature = JSON.stringify([session?.session_id, transcript?.policy, transcript?.held]);
    if (signature === shown) return;
    shown = signature;
    fill(actions);
    setText(held, '');
    setText(words, '');
    if (!session || !transcript) return;
    const { cells, bytes } = transcript.held;
    setText(held, cells ? `${cells === 1 ? '1 cell' : `${cells} cells`}, ${sizeText(bytes)}` : '');
    setText(words, policyWords(transcript));
    if (cells) {
      fill(actions, h('a', { class: 'button', href: api.notebookUrl(session.session_id), download: '' }, 'Download .ipynb'),
        button('Delete transcript', () => void remove(app), { class: 'danger' }));
    }
  });
  return h('section', { class: 'panel transcript-panel', 'aria-labelledby': 'transcript-title' },
    h('div', { class: 'panel-head' }, h('h2', { id: 'transcript-title' }, 'Transcript'), held), words, actions);
}

/** @param {import('../app.js').App} app */
async function remove(app) {
  const sure = await confirmDialog({
    title: 'Delete the transcript?',
    lines: [
      'Code and output of everything that was run in this session are deleted, for every device. This cannot be undone.',
      'Variables and files stay. What is running now goes on, and is kept again; when runs happened and how they ended stays on record.',
    ],
    confirm: 'Delete transcript',
  });
  if (sure !== null) await app.deleteTranscript();
}
