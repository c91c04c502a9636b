//! The player of a behaviour: its steps become the bytes of an HTTP answer, one after another, as
//! long as the client reads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderName, HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};
use tokio::sync::{broadcast, oneshot};

use crate::mock_server::behaviour::{AnswerForm, AnswerStep, CallGate, DripRate, MockBehaviour};
use crate::mock_server::breakable_stream::ResetSwitch;
use crate::mock_server::call_end::{CallEnd, CallEndGuard};
use crate::mock_server::mock_call::MockCall;
use crate::mock_server::mock_response::MockBody;
use crate::mock_server::state::MockState;

/// A JSON answer up to this size has a `Content-Length`.
const MAX_WHOLE_BYTES: usize = 64 * 1024;
/// The size of the pieces that filler is written in.
const FILLER_PIECE_BYTES: usize = 16 * 1024;

/// Answers `call` by the behaviour. Dropping the answer, or this future, means that the client went
/// away.
pub(super) async fn play(
    shared: &Arc<MockState>,
    behaviour: MockBehaviour,
    call: MockCall,
    switch: &ResetSwitch,
) -> Response<MockBody> {
    let events = behaviour.is_events();
    let kind = match behaviour.form {
        AnswerForm::Plain(kind) => kind,
        AnswerForm::Auto | AnswerForm::Json | AnswerForm::Events if events => "text/event-stream",
        AnswerForm::Auto | AnswerForm::Json | AnswerForm::Events => "application/json",
    };
    let player = BehaviourPlayer {
        ending: CallEndGuard::new(Arc::clone(shared), call.tool.clone()),
        cancels: shared.cancels.subscribe(),
        call,
        switch: switch.clone(),
        steps: behaviour.steps.into(),
        pause: None,
        answered: Value::Null,
        filler: 0,
        events,
        pending: BytesMut::new(),
        drip: behaviour.drip,
    };
    let mut response = Response::new(if events {
        player.stream(BytesMut::new())
    } else {
        player.whole().await
    });
    *response.status_mut() = behaviour.status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in &behaviour.headers {
        let pair = HeaderName::from_bytes(name.as_bytes())
            .ok()
            .zip(HeaderValue::from_str(value).ok());
        let (name, value) = pair.unwrap_or_else(|| panic!("not a header: {name}: {value:?}"));
        response.headers_mut().append(name, value);
    }
    response
}

struct BehaviourPlayer {
    ending: CallEndGuard,
    cancels: broadcast::Receiver<(Option<String>, Value)>,
    call: MockCall,
    switch: ResetSwitch,
    steps: VecDeque<AnswerStep>,
    pause: Option<PlayerPause>,
    /// The answer to the last question.
    answered: Value,
    /// Bytes of filler still to be written, in the middle of a [`AnswerStep::Huge`].
    filler: usize,
    events: bool,
    pending: BytesMut,
    drip: Option<DripRate>,
}

/// The reason for the next bytes to wait.
enum PlayerPause {
    Wait(Duration),
    Gate(CallGate),
    Hang,
    Answer(oneshot::Receiver<Value>),
}

impl BehaviourPlayer {
    /// Plays on while the answer fits into one piece, so that a small answer has a length.
    async fn whole(mut self) -> MockBody {
        let mut whole = BytesMut::new();
        while let Some(bytes) = self.next().await {
            whole.extend_from_slice(&bytes);
            if whole.len() > MAX_WHOLE_BYTES || self.drip.is_some() {
                return self.stream(whole);
            }
        }
        Full::from(whole.freeze())
            .map_err(|never| match never {})
            .boxed_unsync()
    }

    fn stream(mut self, first: BytesMut) -> MockBody {
        let rest = std::mem::replace(&mut self.pending, first);
        self.pending.unsplit(rest);
        let frames = stream::unfold(self, |mut player| async move {
            let bytes = player.next().await?;
            Some((Ok(Frame::data(bytes)), player))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.pending.is_empty() {
                let length = self
                    .drip
                    .map_or(usize::MAX, |drip| drip.bytes)
                    .min(self.pending.len());
                if let Some(drip) = self.drip {
                    tokio::time::sleep(drip.every).await;
                }
                return Some(self.pending.split_to(length).freeze());
            }
            if let Some(pause) = self.pause.take() {
                tokio::select! {
                    answer = wait(pause, &self.ending.shared) => self.answered = answer.unwrap_or_default(),
                    () = cancelled(&mut self.cancels, &self.call) => {
                        self.ending.end(CallEnd::Cancelled);
                        self.steps.clear();
                    }
                }
            }
            if self.filler > 0 {
                self.fill();
            } else if let Some(step) = self.steps.pop_front() {
                self.step(step);
            } else {
                self.ending.end(CallEnd::Completed);
                return None;
            }
            if self.steps.is_empty() && self.pause.is_none() && self.filler == 0 {
                self.ending.end(CallEnd::Completed);
            }
        }
    }

    fn step(&mut self, step: AnswerStep) {
        match step {
            AnswerStep::Progress(progress, total) => {
                if let Some(token) = &self.call.token {
                    let params =
                        json!({"progressToken": token, "progress": progress, "total": total});
                    self.notify("notifications/progress", &params);
                }
            }
            AnswerStep::Log { level, unasked } => {
                if unasked || self.call.level.is_some_and(|wanted| level >= wanted) {
                    let data = format!("a message of level {level}");
                    self.notify(
                        "notifications/message",
                        &json!({"level": level.as_str(), "logger": "mock", "data": data}),
                    );
                }
            }
            AnswerStep::Send(text) => {
                let token = self
                    .call
                    .token
                    .as_ref()
                    .map_or_else(|| "\"none\"".to_owned(), Value::to_string);
                let text = text
                    .replace("\"$id\"", &self.call.id.to_string())
                    .replace("\"$token\"", &token);
                self.message(&text);
            }
            AnswerStep::Ask { method, params } => {
                let (message, answer) = self.ending.shared.new_request(method, &params);
                self.message(&message);
                self.pause = Some(PlayerPause::Answer(answer));
            }
            AnswerStep::AskOnGetStream { method, params } => {
                let session = self.call.session.clone().unwrap_or_default();
                self.pause = Some(PlayerPause::Answer(
                    self.ending
                        .shared
                        .request_on_get_stream(&session, method, &params),
                ));
            }
            AnswerStep::Result(result) => self.result(result),
            AnswerStep::Echo => {
                let mut result =
                    json!({"content": [{"type": "text", "text": self.call.arguments.to_string()}]});
                if self.call.revision.has_structured_content() {
                    result["structuredContent"] = self.call.arguments.clone();
                }
                self.result(result);
            }
            AnswerStep::Answer => {
                let text = self.answered["result"].to_string();
                self.result(json!({"content": [{"type": "text", "text": text}]}));
            }
            AnswerStep::Error(error) => self.message(
                &json!({"jsonrpc": "2.0", "id": self.call.id, "error": error}).to_string(),
            ),
            AnswerStep::Huge(bytes) => self.begin_huge(bytes),
            AnswerStep::Raw(text) => self.pending.extend_from_slice(text.as_bytes()),
            AnswerStep::Comment => self.pending.extend_from_slice(b": still here\n\n"),
            AnswerStep::Wait(wait) => self.pause = Some(PlayerPause::Wait(wait)),
            AnswerStep::Gate(gate) => self.pause = Some(PlayerPause::Gate(gate)),
            AnswerStep::Hang => self.pause = Some(PlayerPause::Hang),
            AnswerStep::ResetAfter(bytes) => self.switch.reset_after(bytes),
        }
    }

    fn result(&mut self, mut result: Value) {
        if self.call.revision.is_modern()
            && result.get("resultType").is_none()
            && result.is_object()
        {
            result["resultType"] = json!("complete");
        }
        self.message(&json!({"jsonrpc": "2.0", "id": self.call.id, "result": result}).to_string());
    }

    fn notify(&mut self, method: &str, params: &Value) {
        self.message(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    fn begin_huge(&mut self, bytes: usize) {
        let kind = if self.call.revision.is_modern() {
            r#""resultType":"complete","#
        } else {
            ""
        };
        let frame = if self.events {
            "event: message\ndata: "
        } else {
            ""
        };
        let id = &self.call.id;
        let head = format!(
            r#"{frame}{{"jsonrpc":"2.0","id":{id},"result":{{{kind}"content":[{{"type":"text","text":""#
        );
        self.pending.extend_from_slice(head.as_bytes());
        self.filler = bytes;
        let frame = if self.events { "\n\n" } else { "" };
        self.steps
            .push_front(AnswerStep::Raw(format!(r#""}}]}}}}{frame}"#)));
    }

    fn fill(&mut self) {
        let piece = self.filler.min(FILLER_PIECE_BYTES);
        self.pending.resize(self.pending.len() + piece, b'x');
        self.filler -= piece;
    }

    fn message(&mut self, text: &str) {
        let (before, after) = if self.events {
            ("event: message\ndata: ", "\n\n")
        } else {
            ("", "")
        };
        for part in [before, text, after] {
            self.pending.extend_from_slice(part.as_bytes());
        }
    }
}

/// Waits; returns the answer if it waited for one.
async fn wait(pause: PlayerPause, shared: &MockState) -> Option<Value> {
    match pause {
        PlayerPause::Wait(wait) => tokio::time::sleep(wait).await,
        PlayerPause::Gate(gate) => gate.pass().await,
        PlayerPause::Hang => std::future::pending().await,
        PlayerPause::Answer(answer) => {
            let answer = answer.await.ok()?;
            shared.change(|inner| inner.answers.push(answer.clone()));
            return Some(answer);
        }
    }
    None
}

/// Ends when a notification cancels this very call.
async fn cancelled(cancels: &mut broadcast::Receiver<(Option<String>, Value)>, call: &MockCall) {
    loop {
        match cancels.recv().await {
            Ok((session, id)) if session == call.session && id == call.id => return,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
