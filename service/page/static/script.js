const loading = new Map();

// What a file that is no module calls `library`; it is fetched once.
export function script(name, library) {
	if (!loading.has(name)) {
		loading.set(
			name,
			new Promise((resolve, reject) => {
				const element = document.createElement("script");
				element.src = new URL(name, import.meta.url).href;
				element.onload = () => resolve(window[library]);
				element.onerror = () => reject(new Error(`${name} was not found: reload the page`));
				document.head.append(element);
			}),
		);
	}
	return loading.get(name);
}
