/** `?` lists the shortcuts, and says what stays. */
import { button, h } from '../dom.js';

const SHORTCUTS = [
  ['Shift+Enter or Ctrl+Enter', 'Run the code in the editor'],
  ['Tab, Shift+Tab', 'In the editor: indent, outdent'],
  ['Esc', 'Leave the editor, to the Run button'],
  ['E', 'Go to the editor'],
  ['?', 'This help'],
];

/** @type {[string, string][]} */
const STAYS = [
  ['You close the tab, or go to another device', 'Everything goes on: what runs, variables, files, and the runs with their output. Only text in the editor that was not run stays in its tab.'],
  ['The sandbox ends (idle time, maximum, restart, crash)', 'Variables are gone. Kept files come back with the next run; code and output stay in the transcript, where its policy keeps them, and cells can run again from there.'],
  ['The session ends', 'Kept files and the transcript can still be read and downloaded, for the time that the panels name.'],
  ['You delete the transcript', 'Code and output are gone, for every device. Variables and files stay.'],
];

export function showHelp() {
  const dialog = h('dialog', { class: 'dialog wide', 'aria-labelledby': 'help-title' },
    h('h2', { id: 'help-title', tabIndex: -1, autofocus: true }, 'Help'),
    h('h3', {}, 'Keyboard'),
    h('dl', { class: 'shortcuts' }, SHORTCUTS.map(([keys, what]) => [h('dt', {}, h('kbd', {}, keys)), h('dd', {}, what)]).flat()),
    h('h3', {}, 'What stays'),
    h('dl', { class: 'stays' }, STAYS.map(([when, what]) => [h('dt', {}, when), h('dd', {}, what)]).flat()),
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
