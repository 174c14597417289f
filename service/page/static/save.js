// A file for the person who asked for it; `text` is a string or several.
export function save(name, text, type) {
  const link = document.createElement("a");
  link.download = name;
  link.href = URL.createObjectURL(new Blob([text].flat(), { type }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function cell(value) {
  if (value === undefined || value === null) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csv = (rows) => rows.map((row) => `${row.map(cell).join(",")}\r\n`);
