//! The description of a server, and pages of its lists, in the form that replicas send each other.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use weir_core::upstream::{ListKind, ListKinds, ListPage, ServerDescription};

use crate::failure_form::FailureForm;
use crate::frame::{BadFrame, Frame, FrameKind};

/// The class of a watch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WatchForm {
    /// The bits of the capability class.
    pub(crate) class: u16,
}

/// The facts of a server whose watch is open. Its information and its capabilities are the first
/// parts, if it has them; then the settings of each extension.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DescriptionForm {
    #[serde(default)]
    has_info: bool,
    #[serde(default)]
    has_capabilities: bool,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default)]
    offers: Vec<String>,
    #[serde(default)]
    notifies_of: Vec<String>,
    #[serde(default)]
    subscribes: bool,
    #[serde(default)]
    completes: bool,
    #[serde(default)]
    tasks: bool,
    #[serde(default)]
    apps: bool,
    #[serde(default)]
    extensions: Vec<String>,
    #[serde(flatten)]
    facts: UpstreamFacts,
}

/// The facts of the server that its owner knows beside the description.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UpstreamFacts {
    /// The bits of the classes that are carried to it.
    #[serde(default)]
    pub(crate) carries: u16,
    #[serde(default)]
    pub(crate) revision: Option<String>,
    #[serde(default)]
    pub(crate) second_revision: Option<String>,
}

/// The frame of an open watch.
pub(crate) fn description_frame(about: &ServerDescription, facts: UpstreamFacts) -> Frame {
    let form = DescriptionForm {
        has_info: about.server_info.is_some(),
        has_capabilities: about.capabilities.is_some(),
        instructions: about.instructions.clone(),
        offers: kinds_form(about.offers),
        notifies_of: kinds_form(about.notifies_of),
        subscribes: about.subscribes,
        completes: about.completes,
        tasks: about.tasks,
        apps: about.apps,
        extensions: about
            .extensions
            .iter()
            .map(|(name, _)| name.to_string())
            .collect(),
        facts,
    };
    let mut frame = Frame::new(FrameKind::Opened, &form);
    frame.parts.extend(about.server_info.clone());
    frame.parts.extend(about.capabilities.clone());
    let settings = about
        .extensions
        .iter()
        .map(|(_, settings)| settings.clone());
    frame.parts.extend(settings);
    frame
}

/// The description of a frame.
pub(crate) fn read_description(
    frame: &Frame,
) -> Result<(ServerDescription, UpstreamFacts), BadFrame> {
    let form: DescriptionForm = frame.facts()?;
    let mut parts = frame.parts.iter().cloned();
    let mut next = |is_there: bool| if is_there { parts.next() } else { None };
    let server_info = next(form.has_info);
    let capabilities = next(form.has_capabilities);
    let extensions = form.extensions.into_iter();
    let about = ServerDescription {
        server_info,
        capabilities,
        instructions: form.instructions,
        offers: read_kinds(&form.offers),
        notifies_of: read_kinds(&form.notifies_of),
        subscribes: form.subscribes,
        completes: form.completes,
        tasks: form.tasks,
        apps: form.apps,
        extensions: extensions
            .map(|name| (name.into(), parts.next().unwrap_or_default()))
            .collect(),
    };
    Ok((about, form.facts))
}

/// The request for a page.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListForm {
    /// The number of the request in its watch.
    pub(crate) number: u64,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) cursor: Option<String>,
}

/// The facts of a page. Its items are the parts.
#[derive(Debug, Serialize, Deserialize)]
struct PageForm {
    number: u64,
    #[serde(default)]
    next_cursor: Option<String>,
    #[serde(default)]
    ttl_ms: u64,
    #[serde(default)]
    hinted: bool,
    #[serde(default)]
    public: bool,
}

/// The frame of a page.
pub(crate) fn page_frame(number: u64, page: ListPage) -> Frame {
    let form = PageForm {
        number,
        next_cursor: page.next_cursor,
        ttl_ms: page.ttl_ms,
        hinted: page.hinted,
        public: page.public,
    };
    let mut frame = Frame::new(FrameKind::Page, &form);
    frame.parts = page.items;
    frame
}

/// The page of a frame, and the number of its request.
pub(crate) fn read_page(frame: &Frame) -> Result<(u64, ListPage), BadFrame> {
    let form: PageForm = frame.facts()?;
    let page = ListPage {
        // Each on its own: an item that is kept must not keep its whole page.
        items: frame
            .parts
            .iter()
            .map(|item| Bytes::copy_from_slice(item))
            .collect(),
        next_cursor: form.next_cursor,
        ttl_ms: form.ttl_ms,
        hinted: form.hinted,
        public: form.public,
    };
    Ok((form.number, page))
}

/// The failure of a page.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PageFailureForm {
    /// The number of the request.
    pub(crate) number: u64,
    pub(crate) failure: FailureForm,
}

/// The changed lists.
#[derive(Debug, Serialize, Deserialize)]
struct ChangeForm {
    kinds: Vec<String>,
}

/// The frame of changed lists.
pub(crate) fn change_frame(kinds: ListKinds) -> Frame {
    let kinds = kinds_form(kinds);
    Frame::new(FrameKind::Changed, &ChangeForm { kinds })
}

/// The changed lists of a frame.
pub(crate) fn read_change(frame: &Frame) -> Result<ListKinds, BadFrame> {
    let form: ChangeForm = frame.facts()?;
    Ok(read_kinds(&form.kinds))
}

fn kinds_form(kinds: ListKinds) -> Vec<String> {
    let known = ListKind::ALL.into_iter().filter(|kind| kinds.has(*kind));
    known.map(|kind| kind.word().to_owned()).collect()
}

fn read_kinds(words: &[String]) -> ListKinds {
    words.iter().filter_map(|word| read_kind(word)).collect()
}

/// The list of this word.
pub(crate) fn read_kind(word: &str) -> Option<ListKind> {
    ListKind::ALL.into_iter().find(|kind| kind.word() == word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn description_survives_its_frame() {
        let about = ServerDescription {
            server_info: None,
            instructions: Some("use it".to_owned()),
            capabilities: Some(Bytes::from_static(b"{\"tools\":{}}")),
            offers: [ListKind::Tools, ListKind::Prompts].into_iter().collect(),
            notifies_of: [ListKind::Tools].into_iter().collect(),
            subscribes: true,
            completes: false,
            tasks: true,
            apps: false,
            extensions: vec![("com.example/x".into(), Bytes::from_static(b"{\"a\":1}"))],
        };
        let facts = UpstreamFacts {
            carries: 5,
            revision: Some("2025-11-25".to_owned()),
            second_revision: None,
        };
        let (back, known) = read_description(&description_frame(&about, facts.clone())).unwrap();
        assert_eq!(format!("{back:?}"), format!("{about:?}"));
        assert_eq!(known, facts);
    }

    #[test]
    fn page_and_changes_survive_their_frames() {
        let page = ListPage {
            items: vec![Bytes::from_static(b"{}"), Bytes::from_static(b"{\"a\":1}")],
            next_cursor: Some(String::new()),
            ttl_ms: 7,
            hinted: true,
            public: true,
        };
        let (number, back) = read_page(&page_frame(3, page.clone())).unwrap();
        assert_eq!((number, format!("{back:?}")), (3, format!("{page:?}")));
        let kinds: ListKinds = [ListKind::Templates].into_iter().collect();
        assert_eq!(read_change(&change_frame(kinds)), Ok(kinds));
        assert_eq!(
            read_change(&change_frame(ListKinds::default())),
            Ok(ListKinds::default())
        );
    }
}
