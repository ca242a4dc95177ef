/** `?` lists the shortcuts. */
import { button, h } from '../dom.js';

const SHORTCUTS = [
  ['Shift+Enter or Ctrl+Enter', 'Run the code in the editor'],
  ['Tab, Shift+Tab', 'In the editor: indent, outdent'],
  ['Esc', 'Leave the editor, to the Run button'],
  ['E', 'Go to the editor'],
  ['?', 'This list'],
];

export function showHelp() {
  const dialog = h('dialog', { class: 'dialog', 'aria-labelledby': 'help-title' },
    h('h2', { id: 'help-title' }, 'Keyboard'),
    h('dl', { class: 'shortcuts' }, SHORTCUTS.map(([keys, what]) => [h('dt', {}, h('kbd', {}, keys)), h('dd', {}, what)]).flat()),
    h('div', { class: 'dialog-actions' }, button('Close', () => dialog.close(), { class: 'primary' })));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

export function installHelp() {
  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector('dialog[open]')) return;
    if (event.target instanceof Element && event.target.closest('input, textarea, select, [contenteditable]')) return;
    if (event.key === '?') {
      event.preventDefault();
      showHelp();
    } else if (event.key === 'e' || event.key === 'E') {
      const code = document.getElementById('code');
      if (!code) return;
      event.preventDefault();
      code.focus();
    }
  });
}
