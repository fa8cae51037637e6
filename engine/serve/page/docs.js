// Shows /openapi.json as a page.

const byId = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function table(head, rows) {
  const cells = (kind, texts) => element("tr", {}, ...texts.map((text) => element(kind, kind === "th" ? { scope: "col" } : {}, text)));
  const made = element("table", {}, element("thead", {}, cells("th", head)), element("tbody", {}, ...rows.map((each) => cells("td", each))));
  return element("div", { className: "table", tabIndex: 0 }, made);
}

// A short description of a schema, such as "number, 0 to 1".
function kind(schema, schemas) {
  if (schema.$ref) return nameOf(schema.$ref);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.join(" or ");
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices && !schema.type) return choices.map((each) => kind(each, schemas)).join(" or ");
  if (schema.type === "array") return `list of ${schema.items ? kind(schema.items, schemas) : "values"}`;
  const name = [schema.type].flat().join(" or ") || "any";
  if (schema.contentEncoding) return `${name} in ${schema.contentEncoding}`;
  if (schema.minimum === undefined) return name;
  return `${name}, ${schema.minimum}${schema.maximum === undefined ? " or more" : ` to ${schema.maximum}`}`;
}

const nameOf = (reference) => reference.split("/").pop();

function curl(path, method, operation, isSecured) {
  const base = new URL(`.${path}`, location.href).href;
  const token = isSecured ? " -H 'Authorization: Bearer TOKEN'" : "";
  if (method === "get") return [`curl${token} ${base}`];
  const types = Object.keys(operation.requestBody.content);
  const lines = [];
  if (types.includes("application/octet-stream")) lines.push(`curl${token} --data-binary @dog.jpg ${base}`);
  if (types.includes("multipart/form-data")) lines.push(`curl${token} -F image=@dog.jpg -F image=@cat.jpg ${base}`);
  if (Object.keys(operation.responses["200"].content).includes("image/jpeg"))
    lines.push(`curl${token} --data-binary @dog.jpg -H 'Accept: image/jpeg' ${base} > found.jpg`);
  if (!lines.length) lines.push(`curl${token} -H 'Content-Type: application/json' --data @request.json ${base}`);
  return lines;
}

function section(title, ...content) {
  return element("section", {}, element("h3", {}, title), ...content);
}

function operation(path, method, found, description) {
  const { schemas } = description.components;
  const isSecured = (found.security ?? description.security ?? []).length > 0;
  const body = element("div", { className: "body" });
  if (found.description) body.append(element("p", {}, found.description));
  body.append(section("Example", element("pre", { tabIndex: 0 }, curl(path, method, found, isSecured).join("\n"))));
  if (found.parameters?.length)
    body.append(section("Settings", table(["Name", "Kind", "Meaning"], found.parameters.map((each) => [each.name, kind(each.schema, schemas), each.description]))));
  const json = found.requestBody?.content["application/json"]?.schema;
  const request = json?.$ref ? schemas[nameOf(json.$ref)] : json;
  if (request?.properties)
    body.append(section("JSON", table(["Key", "Kind"], Object.entries(request.properties).map(([key, each]) => [key, kind(each, schemas)]))));
  const answers = Object.entries(found.responses).map(([status, each]) => [status, each.description, Object.keys(each.content ?? {}).join(", ")]);
  body.append(section("Answers", table(["Status", "Meaning", "Type"], answers)));
  const heading = element("summary", { className: method }, element("span", { className: "method" }, method.toUpperCase()), element("h2", {}, path), element("span", {}, found.summary));
  return element("details", { open: method === "post" && !path.startsWith("/v2") }, heading, body);
}

async function start() {
  const description = await fetch("openapi.json").then((response) => response.json());
  byId("facts").replaceChildren(element("li", {}, description.info.title), element("li", {}, description.info.version));
  byId("about").textContent = description.info.description;
  const made = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, found]) => operation(path, method, found, description)));
  byId("operations").replaceChildren(...made);
}

start().catch(() => (byId("about").textContent = "The server does not respond."));
