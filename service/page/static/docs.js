const root = new URL("../../", import.meta.url);
const key = sessionStorage.getItem("gcws-key");

const page = SwaggerUIBundle({
  url: new URL("openapi.json", root).href,
  dom_id: "#swagger-ui",
  deepLinking: true,
  defaultModelsExpandDepth: -1,
  displayRequestDuration: true,
  filter: true,
  persistAuthorization: false,
  syntaxHighlight: { activated: true, theme: "agate" },
  validatorUrl: null,
  onComplete: () => {
    if (key) page.preauthorizeApiKey("bearer", key);
  },
});
