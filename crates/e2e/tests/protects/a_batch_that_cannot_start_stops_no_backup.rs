//! A delete Job whose pod finds no place holds up no backup of its repository for more than five minutes; then it is
//! withdrawn, with the scheduler's own words, and planned anew.

use crate::with;
use anyhow::Result;
use holdfast_api::conditions;
use holdfast_e2e::scenario::POLICY;
use holdfast_e2e::{Look, until};
use k8s_openapi::api::core::v1::{LimitRange, Pod};
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;
use std::time::Duration;

const FIVE_MINUTES: Duration = Duration::from_secs(300);

#[tokio::test]
async fn a_pod_without_a_place() -> Result<()> {
    with("unschedulable", None, async |scenario, watch| {
        let ns = &scenario.namespace;
        scenario.back_up("doomed", POLICY).await?;
        // Every pod that is made from now on asks for more than any node has.
        let much = json!({ "cpu": "100000" });
        let limits = json!({
            "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "much", "namespace": ns },
            "spec": { "limits": [{ "type": "Container", "default": much, "defaultRequest": much }] },
        });
        scenario.lab.create(limits).await?;
        scenario.delete("doomed").await?;
        let pods: Api<Pod> = scenario.lab.api(ns);
        until(
            "the delete Job's pod to find no place",
            Duration::from_secs(60),
            || async {
                let all = pods.list(&ListParams::default()).await?.items;
                let unschedulable = all.iter().any(|pod| {
                    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref());
                    let mut conditions = conditions.unwrap_or_default().iter();
                    conditions.any(|c| c.reason.as_deref() == Some("Unschedulable"))
                });
                let jobs = watch.all().len();
                Ok(if unschedulable && jobs == 1 {
                    Look::Done(())
                } else {
                    Look::Not(format!("{jobs} Jobs, {} pods", all.len()))
                })
            },
        )
        .await?;
        let stuck = watch.all()[0].seen;
        // The pod keeps what it was made with.
        let limits: Api<LimitRange> = scenario.lab.api(ns);
        limits.delete("much", &DeleteParams::default()).await?;

        scenario.back_up("meanwhile", POLICY).await?;
        assert!(
            stuck.elapsed() < FIVE_MINUTES,
            "the backup waited {:?}",
            stuck.elapsed()
        );
        assert!(
            watch.all()[0].is_alive(),
            "the delete Job was given up before its time"
        );

        scenario
            .gone_within("doomed", FIVE_MINUTES + Duration::from_secs(120))
            .await?;
        assert!(stuck.elapsed() >= FIVE_MINUTES);
        let jobs = watch.all();
        assert_eq!(jobs.len(), 2, "{jobs:?}");
        assert!(!jobs[0].succeeded && jobs[1].succeeded);
        assert_eq!(watch.most(), 1, "the second came before the first was gone");
        let events = scenario.told(conditions::DELETION_JOBS_FAILING).await?;
        let [note] = &events[..] else {
            anyhow::bail!("{events:?}");
        };
        assert!(
            note.contains("no container of the delete Job started in time") && note.contains("Unschedulable"),
            "{note}"
        );
        scenario
            .repository_condition(conditions::DELETION_JOBS_FAILING, |c| c.status == "False")
            .await?;
        assert_eq!(scenario.count().await?, 1);
        Ok(())
    })
    .await
}
