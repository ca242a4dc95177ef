/** Running cells again after a loss: the choice, the progress, and what came back. */
import { api } from '../api.js';
import { button, fill, h, setText } from '../dom.js';
import { cellAbout, cellTitle, rebuildWords } from '../model/rebuild.js';

/** @typedef {import('../types.js').Cell} Cell */

/** Whether there can be anything to run again. @param {import('../app.js').App} app */
export function canRebuild(app) {
  return app.session !== null && app.session.state !== 'ended' && app.transcript?.policy === 'full' && app.rebuild?.state !== 'running';
}

/** @param {import('../app.js').App} app */
export async function chooseCells(app) {
  const cells = await app.cellsToRebuild();
  if (!cells) return;
  const rows = cells.filter((cell) => cell.code !== null).map((cell) => ({ cell, box: h('input', { type: 'checkbox', checked: cell.suggested ?? false }) }));
  const run = h('button', { type: 'submit', class: 'primary' });
  const count = () => {
    const n = rows.filter(({ box }) => box.checked).length;
    setText(run, n === 1 ? 'Run 1 cell again' : `Run ${n} cells again`);
    run.disabled = n === 0;
  };
  /** @param {(cell: Cell) => boolean} wanted */
  const choose = (wanted) => {
    for (const { cell, box } of rows) box.checked = wanted(cell);
    count();
  };
  const list = h('ol', { class: 'cell-choice', tabIndex: 0, 'aria-label': 'Cells', on: { change: count } }, rows.map(({ cell, box }) => row(cell, box)));
  const dialog = h('dialog', { class: 'dialog wide', 'aria-labelledby': 'rebuild-title' },
    h('form', { method: 'dialog', on: { submit: () => { dialog.returnValue = 'yes'; } } },
      h('h2', { id: 'rebuild-title' }, 'Rebuild variables'),
      rows.length
        ? [h('p', {}, 'They run in this order, one after the other, and stop at the first error. What succeeded before the loss is chosen already.'),
          h('div', { class: 'choice-tools' }, button('Suggested', () => choose((c) => c.suggested ?? false), { class: 'quiet' }),
            button('All', () => choose(() => true), { class: 'quiet' }), button('None', () => choose(() => false), { class: 'quiet' })),
          list]
        : h('p', {}, 'The transcript holds no cell that could run again.'),
      h('div', { class: 'dialog-actions' }, button('Cancel', () => dialog.close('')), rows.length > 0 && run)));
  dialog.addEventListener('close', () => {
    if (dialog.returnValue === 'yes') void app.runAgain(rows.filter(({ box }) => box.checked).map(({ cell }) => cell.execution_id));
    dialog.remove();
  });
  count();
  document.body.append(dialog);
  dialog.showModal();
  list.querySelector('input:checked')?.scrollIntoView({ block: 'nearest' });
}

/** @param {Cell} cell @param {HTMLInputElement} box */
function row(cell, box) {
  const { first, more } = cellTitle(cell);
  return h('li', {}, h('label', {}, box, h('span', { class: 'cell-what' },
    h('code', {}, first), more > 0 && h('span', { class: 'muted small' }, ` and ${more} more ${more === 1 ? 'line' : 'lines'}`),
    h('span', { class: 'muted small cell-about' }, cellAbout(cell)))));
}

/** How far it is, and how it ended; of a generation that is over nothing is said. @param {import('../app.js').App} app */
export function rebuildBar(app) {
  const box = h('section', { class: 'rebuild', 'aria-label': 'Variables rebuilt', hidden: true });
  let dismissed = '';
  let shown = '';
  app.on(['rebuild', 'session', 'route'], () => {
    const { rebuild, session } = app;
    const off = !rebuild || !session || rebuild.rebuild_id === dismissed || rebuild.generation !== session.generation || session.state === 'ended';
    box.hidden = off;
    const signature = JSON.stringify(off ? null : rebuild);
    if (signature === shown) return;
    shown = signature;
    if (off) {
      fill(box);
      return;
    }
    const { headline, lines, bad } = rebuildWords(rebuild);
    const running = rebuild.state === 'running';
    box.classList.toggle('bad', bad);
    fill(box,
      h('div', { class: 'rebuild-words' }, h('strong', {}, headline), running && h('progress', { max: rebuild.total, value: rebuild.done, 'aria-label': headline }),
        lines.map((line) => h('p', {}, line))),
      h('div', { class: 'rebuild-actions' },
        running && button('Stop', () => void app.attempt(api.stopRebuild(session.session_id)).then((r) => r && app.rebuildChanged(r, false))),
        bad && button('Choose again …', () => void chooseCells(app)),
        !running && button('Dismiss', () => { dismissed = rebuild.rebuild_id; app.changed('rebuild'); }, { class: 'quiet', 'aria-label': 'Dismiss the report of what ran again' })));
  });
  return box;
}
