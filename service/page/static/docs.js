const root = new URL("../../", import.meta.url);
const key = sessionStorage.getItem("gcws-key");
const system = matchMedia("(prefers-color-scheme: dark)");

// Swagger UI is dark by a class of its own.
function darken() {
	const page = document.documentElement;
	const { theme = system.matches ? "dark" : "light" } = page.dataset;
	page.classList.toggle("dark-mode", theme === "dark");
	page.style.colorScheme = theme;
}

// Swagger UI's own deep links put a link into each button.
function follow() {
	const operation = document.getElementById(
		`operations-${location.hash.slice(2).replace("/", "-")}`,
	);
	operation?.scrollIntoView();
	operation?.querySelector("[aria-expanded=false]").click();
}

function name({ target }) {
	const id = target.closest(".opblock-summary")?.closest(".opblock").id;
	if (id) history.replaceState(null, "", id.replace(/^operations-(\w+)-/, "#/$1/"));
}

darken();
addEventListener("hashchange", follow);
addEventListener("click", name);
system.addEventListener("change", darken);
const page = SwaggerUIBundle({
	url: new URL("openapi.json", root).href,
	dom_id: "#swagger-ui",
	deepLinking: false,
	defaultModelsExpandDepth: -1,
	displayRequestDuration: true,
	filter: true,
	persistAuthorization: false,
	syntaxHighlight: { activated: true, theme: "tomorrow-night" },
	validatorUrl: null,
	onComplete: () => {
		for (const tag of document.querySelectorAll(".opblock-tag")) tag.ariaLevel = "2";
		follow();
		if (key) page.preauthorizeApiKey("bearer", key);
	},
});
