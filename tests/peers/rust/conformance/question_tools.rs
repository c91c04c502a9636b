//! Tools and a prompt that need input of the client: by a request while the call runs (legacy), or
//! by ending the call with the question and being called again (modern).

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientResult,
    ContentBlock, CreateMessageRequestParams, ElicitRequest, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, InputRequests, InputRequiredResult, InputResponses,
    SamplingMessage, ServerRequest, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::plain_tools::{said, tool};
use super::{sampling_with_tools, typed};

/// The prefix of the tools that end their calls with questions.
pub(super) const PREFIX: &str = "test_input_required_result_";

/// The prompt that asks for its context.
pub(super) const PROMPT: &str = "test_input_required_result_prompt";

pub(super) fn tools() -> Vec<Tool> {
    let asking = [
        (
            "test_elicitation_sep1034_defaults",
            "Asks with a default for each type",
        ),
        (
            "test_elicitation_sep1330_enums",
            "Asks with each form of enumeration",
        ),
        ("test_missing_capability", "Needs a client with a model"),
        ("test_streaming_elicitation", "Ends with a question"),
        (
            "test_input_required_result_elicitation",
            "Greets by a name that it asks for",
        ),
        (
            "test_input_required_result_sampling",
            "Has the client's model name a capital",
        ),
        (
            "test_input_required_result_list_roots",
            "Counts the client's roots",
        ),
        (
            "test_input_required_result_request_state",
            "Asks, and wants its state back",
        ),
        (
            "test_input_required_result_tampered_state",
            "Asks, and refuses a foreign state",
        ),
        (
            "test_input_required_result_multiple_inputs",
            "Asks three things at once",
        ),
        (
            "test_input_required_result_multi_round",
            "Asks for a name, then for a colour",
        ),
        (
            "test_input_required_result_capabilities",
            "Asks only for what the client said it can do",
        ),
        (
            "test_input_required_result_sampling_with_tools",
            "Has the client's model answer with the help of a tool",
        ),
        (
            "test_sampling_with_tools",
            "Has the client's model answer with the help of a tool",
        ),
    ];
    let mut tools = vec![
        tool(
            "test_sampling",
            "Has the client's model answer",
            json!({ "prompt": { "type": "string" } }),
        ),
        tool(
            "test_elicitation",
            "Asks the user",
            json!({ "message": { "type": "string" } }),
        ),
    ];
    tools.extend(
        asking
            .into_iter()
            .map(|(name, says)| tool(name, says, json!({}))),
    );
    tools
}

fn argument<'a>(request: &'a CallToolRequestParams, name: &str) -> &'a str {
    let given = request
        .arguments
        .as_ref()
        .and_then(|arguments| arguments.get(name));
    given.and_then(Value::as_str).unwrap_or_default()
}

/// Returns the result for a question that could not be asked.
pub(super) fn unasked(error: impl std::fmt::Display) -> CallToolResponse {
    CallToolResult::error(vec![ContentBlock::text(format!(
        "The client was not asked: {error}"
    ))])
    .into()
}

/// Makes the client's model answer, by a request while the call runs.
pub(super) async fn pushed_sampling(
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let question = SamplingMessage::user_text(argument(request, "prompt"));
    Ok(
        match context
            .peer
            .create_message(CreateMessageRequestParams::new(vec![question], 100))
            .await
        {
            Ok(answer) => {
                let answer = json!(answer);
                said(format!(
                    "LLM response: {}",
                    answer["content"]["text"].as_str().unwrap_or("(no text)")
                ))
                .into()
            }
            Err(error) => unasked(error),
        },
    )
}

/// Shows a form to the user, by a request while the call runs.
pub(super) async fn pushed_elicitation(
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let (message, properties, required) = match &*request.name {
        "test_elicitation_sep1034_defaults" => {
            ("Please look over these values", defaults(), json!([]))
        }
        "test_elicitation_sep1330_enums" => ("Please choose", enumerations(), json!([])),
        _ => (
            argument(request, "message"),
            account(),
            json!(["username", "email"]),
        ),
    };
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    let params = typed(json!({ "mode": "form", "message": message, "requestedSchema": schema }))?;
    let question = ServerRequest::ElicitRequest(ElicitRequest::new(params));
    Ok(match context.peer.send_request(question).await {
        Ok(ClientResult::ElicitResult(answer)) => {
            let answer = json!(answer);
            let action = answer["action"].as_str().unwrap_or_default();
            said(format!(
                "Elicitation completed: action={action}, content={}",
                answer["content"]
            ))
            .into()
        }
        Ok(_) => unasked("it answered something else"),
        Err(error) => unasked(error),
    })
}

fn account() -> Value {
    json!({
        "username": { "type": "string", "description": "User's response" },
        "email": { "type": "string", "description": "User's email address" }
    })
}

fn defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true }
    })
}

fn enumerations() -> Value {
    let options = ["option1", "option2", "option3"];
    let titled = |word: &str| -> Vec<Value> {
        let nths = ["First", "Second", "Third"].into_iter().enumerate();
        nths.map(|(nth, title)| json!({ "const": format!("value{}", nth + 1), "title": format!("{title} {word}") }))
            .collect()
    };
    json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": titled("Option") },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"]
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } }
    })
}

/// Returns a form with one field.
pub(super) fn form(message: &str, field: &str, kind: &str) -> Value {
    let schema =
        json!({ "type": "object", "properties": { field: { "type": kind } }, "required": [field] });
    json!({
        "method": "elicitation/create",
        "params": { "mode": "form", "message": message, "requestedSchema": schema }
    })
}

fn sampling(prompt: &str) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    json!({ "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": 100 } })
}

fn roots() -> Value {
    json!({ "method": "roots/list" })
}

/// Ends a call with these questions.
pub(super) fn required(
    questions: Value,
    state: Option<String>,
) -> Result<InputRequiredResult, ErrorData> {
    let questions: InputRequests = typed(questions)?;
    Ok(InputRequiredResult::new(Some(questions), state))
}

/// Returns the field of a form that the user accepted.
pub(super) fn accepted<'a>(
    given: Option<&'a InputResponses>,
    key: &str,
    field: &str,
) -> Option<&'a Value> {
    given?.get(key)?.get("content")?.get(field)
}

fn accepted_text<'a>(given: Option<&'a InputResponses>, key: &str, field: &str) -> Option<&'a str> {
    accepted(given, key, field)?.as_str()
}

fn sampled<'a>(given: Option<&'a InputResponses>, key: &str) -> Option<&'a str> {
    given?.get(key)?.get("content")?.get("text")?.as_str()
}

fn listed(given: Option<&InputResponses>, key: &str) -> Option<usize> {
    given?.get(key)?.get("roots")?.as_array().map(Vec::len)
}

/// Runs two tools of the suite that are called once.
pub(super) fn needing(
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    if request.name == "test_missing_capability" {
        if context
            .client_capabilities()
            .is_none_or(|able| able.sampling.is_none())
        {
            let needed = ClientCapabilities::builder().enable_sampling().build();
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        return Ok(said("The client has a model").into());
    }
    match accepted(request.input_responses.as_ref(), "go_on", "ok") {
        Some(ok) => Ok(said(format!("Go on: {ok}")).into()),
        None => Ok(required(json!({ "go_on": form("Go on?", "ok", "boolean") }), None)?.into()),
    }
}

pub(super) fn prompt(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let Some(context) = accepted_text(request.input_responses.as_ref(), "user_context", "context")
    else {
        let question = form("What context should the prompt use?", "context", "string");
        return Ok(required(json!({ "user_context": question }), None)?.into());
    };
    let content = json!({ "type": "text", "text": format!("Use this context: {context}") });
    Ok(GetPromptResult::new(typed(json!([{ "role": "user", "content": content }]))?).into())
}

/// The `requestState` of this process: a client can bring it back, but not make one up.
#[derive(Clone, Default)]
pub(super) struct SealedRequestStates(Arc<RandomState>);

impl SealedRequestStates {
    /// Returns the state in the form that the client brings back.
    fn seal(&self, state: &str) -> String {
        format!("{:016x}{state}", self.0.hash_one(state))
    }

    /// Returns the state that a client brought back, if any.
    fn open<'a>(&self, request: &'a CallToolRequestParams) -> Result<Option<&'a str>, ErrorData> {
        let Some(sealed) = request.request_state.as_deref() else {
            return Ok(None);
        };
        match sealed.split_at_checked(16) {
            Some((seal, state)) if seal == format!("{:016x}", self.0.hash_one(state)) => {
                Ok(Some(state))
            }
            _ => Err(ErrorData::invalid_params(
                "requestState is not of this server",
                None,
            )),
        }
    }

    /// Calls a tool that ends with questions until the client has brought the answers.
    pub(super) fn ask(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let given = request.input_responses.as_ref();
        let state = self.open(request)?;
        let name = || form("What is your name?", "name", "string");
        let (questions, next) = match request.name.trim_start_matches(PREFIX) {
            "elicitation" => match accepted_text(given, "user_name", "name") {
                Some(name) => return Ok(said(format!("Hello, {name}!")).into()),
                None => (json!({ "user_name": name() }), None),
            },
            "sampling" => match sampled(given, "capital_question") {
                Some(text) => return Ok(said(format!("Sampled: {text}")).into()),
                None => (
                    json!({ "capital_question": sampling("What is the capital of France?") }),
                    None,
                ),
            },
            "list_roots" => match listed(given, "client_roots") {
                Some(count) => return Ok(said(format!("{count} root(s)")).into()),
                None => (json!({ "client_roots": roots() }), None),
            },
            "request_state" | "tampered_state" => match (accepted(given, "confirm", "ok"), state) {
                (Some(_), Some("confirm")) => return Ok(said("state-ok").into()),
                _ => (
                    json!({ "confirm": form("Please confirm", "ok", "boolean") }),
                    Some("confirm".to_owned()),
                ),
            },
            "multiple_inputs" => {
                let name_given = accepted_text(given, "user_name", "name");
                match (
                    name_given,
                    sampled(given, "greeting"),
                    listed(given, "client_roots"),
                    state,
                ) {
                    (Some(name), Some(greeting), Some(count), Some("gather")) => {
                        return Ok(said(format!("{greeting} {name}, with {count} root(s)")).into());
                    }
                    _ => {
                        let greeting = sampling("Generate a greeting");
                        let questions = json!({ "user_name": name(), "greeting": greeting, "client_roots": roots() });
                        (questions, Some("gather".to_owned()))
                    }
                }
            }
            "sampling_with_tools" => match sampling_with_tools::rounds(given) {
                Ok(done) => return Ok(said(done).into()),
                Err(questions) => (questions, Some("weather".to_owned())),
            },
            "multi_round" => match rounds(given, state) {
                Ok(done) => return Ok(said(done).into()),
                Err((questions, next)) => (questions, Some(next)),
            },
            "capabilities" => match by_capability(given, context) {
                Ok(done) => return Ok(said(done).into()),
                Err(questions) => (questions, None),
            },
            _ => {
                return Err(ErrorData::invalid_params(
                    format!("no tool {}", request.name),
                    None,
                ));
            }
        };
        Ok(required(questions, next.map(|next| self.seal(&next)))?.into())
    }
}

/// Returns the end of two rounds, or the question of the next one and the state after it.
fn rounds(given: Option<&InputResponses>, state: Option<&str>) -> Result<String, (Value, String)> {
    let known = state.and_then(|state| state.strip_prefix("name:"));
    let Some(name) = accepted_text(given, "step1", "name").or(known) else {
        return Err((
            json!({ "step1": form("Step 1: What is your name?", "name", "string") }),
            "began".to_owned(),
        ));
    };
    match accepted_text(given, "step2", "color") {
        Some(color) => Ok(format!("{name} likes {color}")),
        None => {
            let question = form("Step 2: What is your favorite color?", "color", "string");
            Err((json!({ "step2": question }), format!("name:{name}")))
        }
    }
}

/// Returns the end, or the questions that this client declared capabilities for.
fn by_capability(
    given: Option<&InputResponses>,
    context: &RequestContext<RoleServer>,
) -> Result<String, Value> {
    let able = context.client_capabilities().unwrap_or_default();
    let mut questions = json!({});
    if able.elicitation.is_some() {
        questions["user_name"] = form("What is your name?", "name", "string");
    }
    if able.sampling.is_some() {
        questions["greeting"] = sampling("Generate a greeting");
    }
    if able.roots.is_some() {
        questions["client_roots"] = roots();
    }
    let keys = questions
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key);
    let open = keys
        .filter(|key| given.is_none_or(|given| !given.contains_key(*key)))
        .count();
    if open == 0 {
        Ok("All was answered".to_owned())
    } else {
        Err(questions)
    }
}
