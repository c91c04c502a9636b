//! A call of another replica's client, on the replica that runs the upstream.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use weir_core::FailureKind;
use weir_core::question::PendingQuestion;
use weir_core::reply::{Payload, PayloadSource, Reply, ReplyEnd, ReplyEvent};
use weir_core::upstream::{CarriedRevision, Upstream};

use crate::call_form::read_call;
use crate::event_form::{AnswerForm, EndForm, EndKind, QuestionForm, note_frame, refusal_frame};
use crate::failure_form::FailureForm;
use crate::frame::{BadFrame, Frame, FrameKind};
use crate::owner_stream::{FrameReader, FrameWriter, OwnerStream, StreamGone};
use crate::singleton_lease::SingletonLease;

/// The most bytes of a chunk. A longer result goes in several.
const CHUNK_BYTES: usize = 64 << 10;

/// A call in the making, with its way back.
struct ServedCall {
    writer: FrameWriter,
    carried: CarriedRevision,
    /// The questions that the client has not answered yet, by their number.
    questions: HashMap<u64, PendingQuestion>,
    question_count: u64,
}

/// The next step of a call.
enum ServedCallStep {
    Event(Option<ReplyEvent>),
    FromClient(Frame),
    Withdrawn(u64),
}

/// Makes a call, and sends its events. Dropping the future cancels the call.
pub(crate) async fn serve_call(
    local: Arc<dyn Upstream>,
    lease: &SingletonLease,
    request: &Frame,
    stream: OwnerStream,
) -> Result<(), StreamGone> {
    let OwnerStream { mut reader, writer } = stream;
    let Ok(outbound) = read_call(request) else {
        return writer.send(&refusal_frame("unknown form of a call")).await;
    };
    let carried = outbound.carried_revision.clone();
    let mut reply = local.call(outbound).await;
    let mut call = ServedCall {
        writer,
        carried,
        questions: HashMap::new(),
        question_count: 0,
    };
    let mut is_first = true;
    loop {
        let step = poll_fn(|cx| call.poll_step(&mut reply, &mut reader, cx)).await?;
        let is_over = match step {
            ServedCallStep::Event(Some(event)) if is_first && is_fenced_out(&event, lease) => {
                let refusal = refusal_frame("the lease has ended");
                return call.writer.send(&refusal).await;
            }
            ServedCallStep::Event(Some(event)) => {
                is_first = false;
                call.send_event(event).await?
            }
            ServedCallStep::Event(None) => true,
            ServedCallStep::FromClient(frame) => {
                call.take_answer(&frame).map_err(|BadFrame| StreamGone)?;
                false
            }
            ServedCallStep::Withdrawn(number) => {
                let form = AnswerForm {
                    number,
                    is_result: false,
                };
                let frame = Frame::new(FrameKind::Withdrawn, &form);
                call.writer.send(&frame).await?;
                false
            }
        };
        if is_over {
            return Ok(());
        }
    }
}

/// True for the failure of a call that found the fence closed: it did not run.
fn is_fenced_out(event: &ReplyEvent, lease: &SingletonLease) -> bool {
    match event {
        ReplyEvent::End(ReplyEnd::Failed(failure)) => {
            *failure.kind() == FailureKind::Overloaded && lease.own_epoch().is_none()
        }
        ReplyEvent::Note(_) | ReplyEvent::Ask(_) | ReplyEvent::End(_) => false,
    }
}

impl ServedCall {
    fn poll_step(
        &mut self,
        reply: &mut Reply,
        reader: &mut FrameReader,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Result<ServedCallStep, StreamGone>> {
        if let Poll::Ready(frame) = reader.poll_frame(cx) {
            return Poll::Ready(frame.map(ServedCallStep::FromClient));
        }
        let withdrawn = self.questions.iter_mut().find_map(|(number, question)| {
            question.poll_withdrawn(cx).is_ready().then_some(*number)
        });
        if let Some(number) = withdrawn {
            self.questions.remove(&number);
            return Poll::Ready(Ok(ServedCallStep::Withdrawn(number)));
        }
        reply
            .poll_next(cx)
            .map(|event| Ok(ServedCallStep::Event(event)))
    }

    /// Sends an event; true after the last.
    async fn send_event(&mut self, event: ReplyEvent) -> Result<bool, StreamGone> {
        match event {
            ReplyEvent::Note(note) => self.writer.send(&note_frame(note)).await?,
            ReplyEvent::Ask(question) => self.ask(*question).await?,
            ReplyEvent::End(end) => {
                self.send_end(end).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn ask(&mut self, question: PendingQuestion) -> Result<(), StreamGone> {
        self.question_count += 1;
        let form = QuestionForm {
            number: self.question_count,
            method: question.question.method.as_str().to_owned(),
            wants_progress: question.wants_progress,
            elicitation: question.elicitation.as_deref().map(str::to_owned),
        };
        let params = question.question.params.clone();
        self.questions.insert(self.question_count, question);
        let frame = Frame::new(FrameKind::Question, &form).with(params);
        self.writer.send(&frame).await
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of many kinds of frames a client answers with few"
    )]
    fn take_answer(&mut self, frame: &Frame) -> Result<(), BadFrame> {
        let form: AnswerForm = frame.facts()?;
        match frame.kind {
            FrameKind::Answer => {
                if let Some(question) = self.questions.remove(&form.number) {
                    let bytes = frame.part(0);
                    question.answer(if form.is_result {
                        Ok(bytes)
                    } else {
                        Err(bytes)
                    });
                }
            }
            FrameKind::AnswerProgress => {
                if let Some(question) = self.questions.get(&form.number) {
                    question.send_progress(frame.part(0));
                }
            }
            FrameKind::NoAnswer => drop(self.questions.remove(&form.number)),
            _ => return Err(BadFrame),
        }
        Ok(())
    }

    async fn send_end(&mut self, end: ReplyEnd) -> Result<(), StreamGone> {
        match end {
            ReplyEnd::Complete(payload) => self.send_payload(EndKind::Complete, payload).await,
            ReplyEnd::InputRequired(payload) => {
                self.send_payload(EndKind::InputRequired, payload).await
            }
            ReplyEnd::Task(created) => {
                self.send_payload(EndKind::Task, Payload::Whole(created))
                    .await
            }
            ReplyEnd::Failed(failure) => {
                let mut form = self.end_form(EndKind::Failed);
                form.failure = Some(FailureForm::of(&failure));
                self.writer.send(&Frame::new(FrameKind::End, &form)).await
            }
            // Only a router parks a call.
            ReplyEnd::Parked { .. } => Err(StreamGone),
        }
    }

    async fn send_payload(&self, kind: EndKind, payload: Payload) -> Result<(), StreamGone> {
        let form = self.end_form(kind);
        match payload {
            Payload::Whole(result) | Payload::Cleaned { result, .. }
                if result.len() <= CHUNK_BYTES =>
            {
                let frame = Frame::new(FrameKind::End, &form).with(result);
                self.writer.send(&frame).await
            }
            Payload::Whole(mut result) | Payload::Cleaned { mut result, .. } => {
                self.writer
                    .send(&Frame::new(FrameKind::Chunked, &form))
                    .await?;
                while !result.is_empty() {
                    let chunk = result.split_to(result.len().min(CHUNK_BYTES));
                    self.send_chunk(chunk).await?;
                }
                self.writer
                    .send(&Frame::new(FrameKind::ChunksEnd, &form))
                    .await
            }
            Payload::Stream(source) => {
                self.writer
                    .send(&Frame::new(FrameKind::Chunked, &form))
                    .await?;
                self.send_chunks(kind, source).await
            }
        }
    }

    async fn send_chunks(
        &self,
        kind: EndKind,
        mut source: Box<dyn PayloadSource>,
    ) -> Result<(), StreamGone> {
        let mut form = self.end_form(kind);
        loop {
            match poll_fn(|cx| source.poll_chunk(cx)).await {
                Some(Ok(chunk)) => self.send_chunk(chunk).await?,
                Some(Err(failure)) => {
                    form.failure = Some(FailureForm::of(&failure));
                    break;
                }
                None => break,
            }
        }
        self.writer
            .send(&Frame::new(FrameKind::ChunksEnd, &form))
            .await
    }

    async fn send_chunk(&self, chunk: Bytes) -> Result<(), StreamGone> {
        let frame = Frame::empty(FrameKind::Chunk).with(chunk);
        self.writer.send(&frame).await
    }

    fn end_form(&self, kind: EndKind) -> EndForm {
        let carried = self.carried.revision();
        EndForm {
            kind,
            carried: carried.map(|revision| revision.as_str().to_owned()),
            failure: None,
        }
    }
}
