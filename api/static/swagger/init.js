// Shows our own document; nothing is asked of or sent to any other server.
window.ui = SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  tryItOutEnabled: true,
  presets: [SwaggerUIBundle.presets.apis],
});
