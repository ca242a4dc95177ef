/** Uploading: several files, by button or by dropping them; each with progress, cancel, and its own error. */
import { api, problem } from '../api.js';
import { announce, button, fill, h, setText } from '../dom.js';
import { sizeText } from '../model/words.js';

/** Uploads that run at once; the others wait, so that the page keeps connections for everything else. */
const PARALLEL = 2;

/** @param {import('../app.js').App} app */
export function uploader(app) {
  const list = h('ul', { class: 'uploads', 'aria-label': 'Uploads' });
  const input = h('input', { type: 'file', multiple: true, class: 'visually-hidden', id: 'upload-input', tabIndex: -1, 'aria-hidden': 'true' });
  const choose = button('Upload files', () => input.click());
  const zone = h('div', { class: 'drop-zone' }, choose, h('span', { class: 'muted small' }, 'or drop them here'), input);
  /** @type {(() => void)[]} */
  const queue = [];
  let running = 0;
  const next = () => {
    while (running < PARALLEL && queue.length) {
      running++;
      queue.shift()?.();
    }
  };
  /** @param {Iterable<File>} files */
  const add = (files) => {
    const id = app.session?.session_id;
    if (!id) return;
    for (const file of files) {
      const item = uploadItem(app, id, file, (start) => {
        queue.push(start);
        next();
      }, () => {
        running--;
        next();
      });
      list.append(item);
    }
  };
  input.addEventListener('change', () => {
    add([...(input.files ?? [])]);
    input.value = '';
  });
  dropTarget(zone, add);
  app.on(['route'], () => {
    // Progress of another session's uploads would be read as this one's.
    const open = app.session?.session_id ?? '';
    if (list.dataset.session !== open) {
      list.dataset.session = open;
      for (const row of [...list.children]) row.toggleAttribute('hidden', /** @type {HTMLElement} */ (row).dataset.session !== open);
    }
  });
  return h('div', {}, zone, list);
}

/** Files may be dropped anywhere in the window: a near miss must not make the browser open the file instead of the page. @param {HTMLElement} zone @param {(files: File[]) => void} add */
function dropTarget(zone, add) {
  /** @param {DragEvent} event */
  const hasFiles = (event) => event.dataTransfer?.types.includes('Files') ?? false;
  addEventListener('dragover', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    zone.classList.add('over');
  });
  addEventListener('dragleave', (event) => { if (!event.relatedTarget) zone.classList.remove('over'); });
  addEventListener('drop', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    zone.classList.remove('over');
    if (zone.isConnected) add([...(event.dataTransfer?.files ?? [])]);
  });
}

/**
 * @param {import('../app.js').App} app @param {string} id @param {File} file
 * @param {(start: () => void) => void} enqueue @param {() => void} released
 */
function uploadItem(app, id, file, enqueue, released) {
  const bar = h('progress', { max: 1, value: 0, 'aria-label': `Upload of ${file.name}` });
  const state = h('span', { class: 'small' }, 'waiting');
  const actions = h('span', { class: 'upload-actions' });
  const element = h('li', { data: { session: id } }, h('span', { class: 'upload-name' }, file.name), bar, state, actions);
  const dismiss = button('Dismiss', () => element.remove(), { class: 'quiet', 'aria-label': `Dismiss ${file.name}` });

  /** @param {boolean} overwrite */
  const start = (overwrite) => {
    let canceled = false;
    const request = new XMLHttpRequest();
    fill(actions, button('Cancel', () => {
      canceled = true;
      request.abort();
      if (request.readyState === XMLHttpRequest.UNSENT) failed('Canceled', false);
    }, { class: 'quiet', 'aria-label': `Cancel upload of ${file.name}` }));
    bar.hidden = false;
    setText(state, 'waiting');
    enqueue(() => {
      if (canceled) return released();
      request.open('PUT', `${api.fileUrl(id, file.name)}${overwrite ? '?overwrite=1' : ''}`);
      request.setRequestHeader('Content-Type', 'application/octet-stream');
      request.upload.addEventListener('progress', (event) => {
        bar.value = event.lengthComputable && event.total ? event.loaded / event.total : 0;
        setText(state, event.loaded < event.total ? `${sizeText(event.loaded)} of ${sizeText(event.total)}` : 'checking');
      });
      request.addEventListener('loadend', () => {
        released();
        if (request.status >= 200 && request.status < 300) done();
        else if (canceled) failed('Canceled', false);
        else if (request.status === 0) failed('The connection broke; try again', true);
        else refused(problem(request.status, request.responseText, request.getResponseHeader('Retry-After')));
      });
      request.send(file);
    });
  };
  const done = () => {
    bar.hidden = true;
    setText(state, `uploaded, ${sizeText(file.size)}`);
    fill(actions, dismiss);
    announce(`${file.name} uploaded`);
    app.filesSoon(0);
    setTimeout(() => element.remove(), 8000);
  };
  /** @param {string} text @param {boolean} retry */
  const failed = (text, retry) => {
    bar.hidden = true;
    element.classList.add('failed');
    setText(state, text);
    fill(actions, retry && button('Try again', () => again(false), { class: 'quiet' }), dismiss);
  };
  /** @param {boolean} overwrite */
  const again = (overwrite) => {
    element.classList.remove('failed');
    start(overwrite);
  };
  /** @param {import('../api.js').ApiError} error */
  const refused = (error) => {
    announce(`${file.name} was not uploaded: ${error.message}`);
    failed(error.message, error.status === 503 || error.status === 429);
    if (error.code === 'conflict') fill(actions, button('Replace', () => again(true), { class: 'quiet', 'aria-label': `Replace ${file.name}` }), dismiss);
  };
  start(false);
  return element;
}
