/** A textarea that behaves like a code editor: indentation, no keyboard trap, the browser's own undo. */
import { h } from '../dom.js';
import { backspace, indent, newline, outdent } from '../model/edit.js';

/** @param {{id: string, label: string, describedBy: string, onRun: () => void, onLeave: () => void, onInput: () => void}} options */
export function codeEditor({ id, label, describedBy, onRun, onLeave, onInput }) {
  const area = h('textarea', {
    id, class: 'code-editor', rows: 3, spellcheck: false, autocapitalize: 'off', autocomplete: 'off', 'aria-label': label,
    'aria-describedby': describedBy, autocorrect: 'off', placeholder: 'Python',
  });
  const fit = () => {
    area.style.height = 'auto';
    area.style.height = `${area.scrollHeight + 2}px`;
  };
  /** @param {import('../model/edit.js').Edit | null} edit */
  const change = (edit) => {
    if (!edit) return false;
    area.setSelectionRange(edit.from, edit.to);
    // execCommand is the one way to change a textarea that the browser's undo knows about.
    const command = edit.insert ? document.execCommand('insertText', false, edit.insert) : document.execCommand('delete');
    if (!command) area.setRangeText(edit.insert, edit.from, edit.to, 'end');
    area.setSelectionRange(edit.start, edit.end);
    fit();
    return true;
  };
  area.addEventListener('keydown', (event) => {
    if (event.isComposing) return;
    const { value, selectionStart: start, selectionEnd: end } = area;
    const modifier = event.ctrlKey || event.metaKey;
    if (event.key === 'Enter' && (event.shiftKey || modifier)) onRun();
    else if (event.key === 'Escape') onLeave();
    else if (event.altKey || modifier) return;
    else if (event.key === 'Tab') change(event.shiftKey ? outdent(value, start, end) : indent(value, start, end));
    else if (event.key === 'Enter') change(newline(value, start, end));
    else if (event.key === 'Backspace') {
      if (!change(backspace(value, start, end))) return;
    } else return;
    event.preventDefault();
  });
  area.addEventListener('input', () => {
    fit();
    onInput();
  });
  return {
    area,
    /** @param {string} code */
    set(code) {
      area.value = code;
      fit();
    },
  };
}
