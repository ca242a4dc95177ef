/** The files: what is kept, what a recycle would take, and putting more in. */
import { api } from '../api.js';
import { button, confirmDialog, fill, h, reconcile, setText } from '../dom.js';
import { agoText } from '../model/clock.js';
import { shortHash, sizeText } from '../model/words.js';
import { uploader } from './uploads.js';

/** @typedef {import('../types.js').WorkspaceFile} WorkspaceFile */

/** @param {import('../app.js').App} app */
export function filesPanel(app) {
  const kept = group('Kept', 'Saved, and back in the next sandbox.', 'Nothing yet. What is written to out/ or uploaded is kept.');
  const lost = group('Lost at recycle', 'Gone when the sandbox ends, unless you keep them.', 'Nothing.');
  const refused = h('div', {});
  const state = h('p', { class: 'muted small' });
  const uploads = uploader(app);
  const refresh = button('Refresh', () => void app.refreshFiles(), { class: 'quiet' });
  /** @type {Map<string, ReturnType<typeof fileRow>>} */
  let rows = new Map();
  let session = '';

  app.on(['files', 'tick', 'route'], () => {
    const open = app.session?.session_id ?? '';
    if (open !== session) {
      session = open;
      rows = new Map();
    }
    const { files } = app;
    setText(state, app.filesError || (!files ? 'Loading …' : files.live ? (files.truncated ? 'Only the first files are listed.' : '') : 'No sandbox now: these are the saved files.'));
    if (!files) return;
    /** @type {Map<string, ReturnType<typeof fileRow>>} */
    const next = new Map();
    for (const file of files.files) {
      const row = rows.get(file.path) ?? fileRow(app, file.path);
      row.draw(file);
      next.set(file.path, row);
    }
    rows = next;
    /** @param {boolean} declared */
    const elements = (declared) => files.files.filter((f) => f.declared === declared)
      .map((f) => /** @type {ReturnType<typeof fileRow>} */ (rows.get(f.path)).element);
    kept.draw(elements(true));
    lost.draw(elements(false));
    lost.element.hidden = !files.live && !files.files.some((f) => !f.declared);
    const signature = JSON.stringify(files.refused);
    if (refused.dataset.signature !== signature) {
      refused.dataset.signature = signature;
      fill(refused, files.refused.length > 0 && [h('h3', {}, 'Cannot be kept'),
        h('ul', { class: 'file-list' }, files.refused.map((f) => h('li', {}, h('code', {}, f.path), h('p', { class: 'small' }, f.reason))))]);
    }
  });
  return h('section', { class: 'panel files-panel', 'aria-labelledby': 'files-title' },
    h('div', { class: 'panel-head' }, h('h2', { id: 'files-title' }, 'Files'), refresh), uploads, state, kept.element, lost.element, refused);
}

/** @param {string} title @param {string} about @param {string} none */
function group(title, about, none) {
  const list = h('ul', { class: 'file-list' });
  const empty = h('p', { class: 'muted small' }, none);
  return {
    element: h('section', { 'aria-label': title }, h('h3', {}, title), h('p', { class: 'muted small' }, about), list, empty),
    /** @param {Element[]} elements */
    draw(elements) {
      reconcile(list, elements);
      empty.hidden = elements.length > 0;
    },
  };
}

/** @param {import('../app.js').App} app @param {string} path */
function fileRow(app, path) {
  const id = () => app.session?.session_id ?? '';
  const link = h('a', { download: path.split('/').at(-1) ?? path, href: api.fileUrl(id(), path) }, path);
  const about = h('span', { class: 'muted small' });
  const keep = h('input', { type: 'checkbox', 'aria-label': `Keep ${path}` });
  keep.addEventListener('change', async () => {
    keep.disabled = true;
    await app.keep(path, keep.checked);
    keep.disabled = false;
  });
  const remove = button('Delete', async () => {
    const sure = await confirmDialog({ title: `Delete ${path}?`, lines: ['It is deleted in the sandbox, and its saved version is not restored any more.'], confirm: 'Delete' });
    if (sure === null) return;
    await app.attempt(api.deleteFile(id(), path));
    await app.refreshFiles();
  }, { class: 'quiet', 'aria-label': `Delete ${path}` });
  const element = h('li', {}, h('div', { class: 'file-what' }, link, about), h('label', { class: 'keep' }, keep, ' Keep'), remove);
  return {
    element,
    /** @param {WorkspaceFile} file */
    draw(file) {
      if (!keep.disabled) keep.checked = file.declared;
      const parts = [sizeText(file.size)];
      if (file.stored_at) parts.push(`saved ${agoText(file.stored_at, app.now)}`);
      else if (file.declared) parts.push('not saved yet');
      if (file.sha256) parts.push(shortHash(file.sha256));
      if (file.held_back) parts.push(`not downloadable: ${file.held_back}`);
      setText(about, parts.join(' · '));
      if (file.sha256) about.title = `SHA-256 ${file.sha256}`;
    },
  };
}
