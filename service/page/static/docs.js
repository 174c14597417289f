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

darken();
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
		if (key) page.preauthorizeApiKey("bearer", key);
	},
});
