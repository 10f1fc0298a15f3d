//! One listing: page after page into a [`Fold`].
//!
//! **Promises.** Memory does not grow with the number of objects: a page is folded before the next one is asked for.
//! What fails leaves the walk as it was after the last whole page, and the same walk can go on from there.

use super::bucket::Pages;
use super::reason::{StoreReason, Trouble};
use holdfast_core::quota::Ledger;
use holdfast_core::quota::enumerate::{Complete, Fold, Scope, Sum};
use jiff::Timestamp;

/// A listing under way.
#[derive(Debug, Clone)]
pub struct Walk {
    fold: Fold,
    prefix: String,
    /// When it began.
    pub started_at: Timestamp,
    /// The last key that was seen.
    pub last_key: Option<String>,
    token: Option<String>,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more.
    More,
    /// That was the last page.
    End,
}

impl Walk {
    /// A listing begins.
    #[must_use]
    pub fn begin(ledger: &Ledger, scope: Scope, started_at: Timestamp) -> Self {
        Self {
            prefix: scope.prefix.clone(),
            fold: Fold::begin(ledger, scope, started_at),
            started_at,
            last_key: None,
            token: None,
        }
    }

    /// Folds one page.
    ///
    /// # Errors
    /// [`StoreReason::ListingFailed`]; the walk is as it was before.
    pub async fn step(&mut self, pages: &impl Pages) -> Result<Step, Trouble> {
        let failed = |what: String| Trouble::new(StoreReason::ListingFailed, what);
        let page = pages
            .page(&self.prefix, self.token.clone())
            .await
            .map_err(|error| failed(format!("the store could not be listed: {error}")))?;
        if page.next.is_some() && page.next == self.token {
            return Err(failed(
                "the server answers the same page again and again; nothing is concluded from that".to_owned(),
            ));
        }
        // The object that stands for the folder itself comes without its slash.
        let folder = self.prefix.trim_end_matches('/');
        let strange = |key: &str| !key.starts_with(&self.prefix) && key != folder;
        if let Some((key, _)) = page.objects.iter().find(|(key, _)| strange(key)) {
            return Err(failed(format!(
                "the server answered the key {key:?}, which does not begin with spec.prefix; nothing is concluded from that"
            )));
        }
        for (key, bytes) in &page.objects {
            self.fold.object(key, *bytes);
        }
        if let Some((key, _)) = page.objects.last() {
            self.last_key = Some(key.clone());
        }
        self.token = page.next;
        Ok(if self.token.is_some() {
            Step::More
        } else {
            Step::End
        })
    }

    /// Objects and bytes so far.
    #[must_use]
    pub fn progress(&self) -> Sum {
        self.fold.progress()
    }

    /// The listing has reached its end, after [`Step::End`].
    #[must_use]
    pub fn finish(self, completed_at: Timestamp) -> Complete {
        self.fold.finish(completed_at)
    }
}
