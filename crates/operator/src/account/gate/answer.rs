//! The webhook: a review comes in, an answer goes out.
//!
//! **Promises.** A refusal carries the code, the reason and the sentence that reach the person. A request that is none
//! of the gate's business is let through; one that cannot be read is an error, which the API server treats by its
//! failure policy. Nothing is answered by a replica that does not lead.

use super::{Gate, Refused};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use holdfast_api::backups::{BackupJob, JobPhase};
use holdfast_api::names;
use holdfast_core::quota::Application;
use holdfast_core::quota::gate::{Decision, NameExists, Operation, Request};
use kube::core::Status;
use kube::core::admission::{self, AdmissionRequest, AdmissionResponse, AdmissionReview};
use std::sync::Arc;
use std::time::Instant;

/// Where the webhook listens.
pub const PATH: &str = "/v1/admission/backupjobs";
/// Largest review that is read: an object of the API server's own limit, twice over, is larger than any BackupJob.
const BODY_LIMIT: usize = 4 * 1024 * 1024;

impl Gate {
    /// The routes of this part of the HTTPS server.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route(PATH, post(answer))
            .layer(DefaultBodyLimit::max(BODY_LIMIT))
            .with_state(Arc::clone(self))
    }
}

pub(super) async fn answer(
    State(gate): State<Arc<Gate>>,
    Json(review): Json<AdmissionReview<BackupJob>>,
) -> Response {
    let began = Instant::now();
    let request: AdmissionRequest<BackupJob> = match review.try_into() {
        Ok(request) => request,
        Err(error) => {
            return refuse(
                StatusCode::BAD_REQUEST,
                &format!("not an AdmissionReview: {error}"),
            );
        }
    };
    if !gate.is_open() {
        return refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "this replica of Holdfast does not lead, and only the leader counts; try again in a few seconds",
        );
    }
    let Some((job, question)) = question(&request) else {
        gate.count.answered("NotGated", began.elapsed());
        return Json(AdmissionResponse::from(&request).into_review()).into_response();
    };
    let decision = match gate.ask(question.clone(), &request.name).await {
        Ok(decision) => decision,
        Err(error) => {
            gate.count.answered("NameNotRead", began.elapsed());
            return refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
        }
    };
    // What was decided while the lease ran out is nobody's word: another leader may have said otherwise.
    if !gate.is_open() {
        return refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "this replica of Holdfast lost its lease while it answered; try again in a few seconds",
        );
    }
    gate.count.answered(decision.reason(), began.elapsed());
    if let (Decision::Refuse { reason, message, .. }, false) = (&decision, question.dry_run) {
        tracing::info!(
            namespace = question.namespace,
            job = request.name,
            reason = reason.as_str(),
            message,
            "a BackupJob was refused"
        );
        if let Some(plan) = &job.spec.plan_ref {
            gate.plans.tell(Refused {
                plan: plan.name.clone(),
                job: request.name.clone(),
                reason: reason.as_str(),
                message: message.clone(),
                request: question.clone(),
            });
        }
    }
    Json(response(&request, &decision).into_review()).into_response()
}

/// What is asked, or nothing if the request does not begin a backup.
fn question(review: &AdmissionRequest<BackupJob>) -> Option<(&BackupJob, Request)> {
    let job = review.object.as_ref()?;
    let operation = match review.operation {
        admission::Operation::Create => Operation::Create,
        admission::Operation::Update => {
            let before = review.old_object.as_ref()?;
            let phase = before.status.as_ref().and_then(|status| status.phase);
            let over = phase.is_some_and(JobPhase::is_over);
            let application = Application::from(&job.spec.application_ref);
            let same = Application::from(&before.spec.application_ref) == application;
            if same || over || job.metadata.deletion_timestamp.is_some() {
                return None;
            }
            Operation::ChangeApplication
        }
        admission::Operation::Delete | admission::Operation::Connect => return None,
    };
    let request = Request {
        // A BackupJob can only name an application of its own namespace.
        namespace: review.namespace.clone()?,
        uid: job.metadata.uid.clone().unwrap_or_else(|| review.uid.clone()),
        application: Application::from(&job.spec.application_ref),
        name_exists: NameExists::NotKnown,
        operation,
        dry_run: review.dry_run,
    };
    Some((job, request))
}

fn response(request: &AdmissionRequest<BackupJob>, decision: &Decision) -> AdmissionResponse {
    let mut response = AdmissionResponse::from(request);
    let object = format!("backupjobs.{} {:?}", names::BACKUPS_GROUP, request.name);
    let (code, reason, message) = match decision {
        Decision::Admit(_) => return response,
        Decision::AlreadyExists => (409, "AlreadyExists", format!("{object} already exists")),
        Decision::Refuse { message, .. } => (403, "Forbidden", format!("{object} is forbidden: {message}")),
    };
    response.allowed = false;
    response.result = Status::failure(&message, reason).with_code(code);
    response
}

fn refuse(code: StatusCode, why: &str) -> Response {
    (code, format!("{why}\n")).into_response()
}
