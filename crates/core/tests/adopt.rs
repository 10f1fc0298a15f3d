//! Which snapshot a policy may adopt: each sentence of `docs/design.md` 3.7, and every combination of the facts.
#![allow(clippy::unwrap_used)]

use holdfast_core::deletion::Policy;
use holdfast_core::retention::adopt::{
    Adopter, Adoption, Found, Identity, Recorded, Remembered, Tagged, Why, adopt,
};

const MINE: Identity<'static> = Identity {
    username: "p",
    hostname: "app",
    path: "/pvc/data",
};

const FOUND: Found<'static> = Found {
    tagged: Tagged::Ours,
    recorded: Recorded::Free,
    identity: MINE,
    remembered: Remembered::Nothing,
    pinned: false,
    let_go: false,
    taken_since: false,
};

const ADOPTER: Adopter<'static> = Adopter {
    namespace: "app",
    identity: MINE,
    shared: false,
    grants_hostname: false,
    policy: Policy::Delete,
    contested: false,
};

const POLICIES: [Policy; 4] = [Policy::Delete, Policy::Retain, Policy::Orphan, Policy::Unknown];

fn released(policy: Policy, pinned: bool) -> Found<'static> {
    Found {
        remembered: Remembered::Released { policy, pinned },
        ..FOUND
    }
}

#[test]
fn one_of_its_own_source_is_adopted_with_what_the_policy_gives() {
    let adopted = Adoption::Adopt {
        policy: Policy::Delete,
        pinned: false,
    };
    for tagged in [Tagged::Ours, Tagged::Nobody] {
        assert_eq!(adopt(&Found { tagged, ..FOUND }, &ADOPTER), adopted);
    }
}

#[test]
fn what_another_program_took_while_the_policy_was_there_stays_that_programs() {
    let since = |tagged| Found {
        tagged,
        taken_since: true,
        ..FOUND
    };
    assert_eq!(
        adopt(&since(Tagged::Nobody), &ADOPTER),
        Adoption::Leave(Why::OfAnotherProgram)
    );
    assert!(matches!(
        adopt(&since(Tagged::Ours), &ADOPTER),
        Adoption::Adopt { .. }
    ));
}

#[test]
fn one_of_another_cluster_is_never_adopted() {
    let found = Found {
        tagged: Tagged::Another,
        ..FOUND
    };
    assert_eq!(adopt(&found, &ADOPTER), Adoption::Leave(Why::OtherCluster));
}

#[test]
fn in_a_cluster_repository_a_hostname_is_a_namespace_unless_the_repository_grants_more() {
    let theirs = Identity {
        hostname: "other",
        ..MINE
    };
    let found = Found {
        identity: theirs,
        ..FOUND
    };
    // A policy that calls itself like another namespace.
    let adopter = Adopter {
        identity: theirs,
        shared: true,
        ..ADOPTER
    };
    assert_eq!(adopt(&found, &adopter), Adoption::Leave(Why::OtherNamespace));
    let granted = Adopter {
        grants_hostname: true,
        ..adopter
    };
    assert!(matches!(adopt(&found, &granted), Adoption::Adopt { .. }));
    let own = Adopter {
        shared: false,
        ..adopter
    };
    assert!(matches!(adopt(&found, &own), Adoption::Adopt { .. }));
}

#[test]
fn another_user_host_or_path_is_another_source() {
    for identity in [
        Identity {
            username: "q",
            ..MINE
        },
        Identity {
            hostname: "h",
            ..MINE
        },
        Identity { path: "/pvc", ..MINE },
    ] {
        let found = Found { identity, ..FOUND };
        assert_eq!(
            adopt(&found, &ADOPTER),
            Adoption::Leave(Why::OtherIdentity),
            "{identity:?}"
        );
    }
}

#[test]
fn what_was_retained_or_pinned_when_it_was_released_stays_so() {
    for given in POLICIES {
        let adopter = Adopter {
            policy: given,
            ..ADOPTER
        };
        for pinned in [false, true] {
            let kept = |policy| Adoption::Adopt { policy, pinned };
            assert_eq!(
                adopt(&released(Policy::Retain, pinned), &adopter),
                kept(Policy::Retain)
            );
            assert_eq!(
                adopt(&released(Policy::Orphan, pinned), &adopter),
                kept(Policy::Orphan)
            );
            assert_eq!(
                adopt(&released(Policy::Unknown, pinned), &adopter),
                kept(Policy::Retain)
            );
        }
    }
    // Kept by a guard although its own word was Delete: retention decides about it as before.
    let cascade = adopt(&released(Policy::Delete, false), &ADOPTER);
    assert_eq!(
        cascade,
        Adoption::Adopt {
            policy: Policy::Delete,
            pinned: false
        }
    );
    let stricter = Adopter {
        policy: Policy::Retain,
        ..ADOPTER
    };
    assert!(matches!(
        adopt(&released(Policy::Delete, false), &stricter),
        Adoption::Adopt {
            policy: Policy::Retain,
            ..
        }
    ));
}

#[test]
fn what_the_repository_says_is_pinned_stays_pinned() {
    for remembered in [
        Remembered::Nothing,
        Remembered::Released {
            policy: Policy::Delete,
            pinned: false,
        },
    ] {
        let found = Found {
            remembered,
            pinned: true,
            ..FOUND
        };
        assert!(matches!(
            adopt(&found, &ADOPTER),
            Adoption::Adopt { pinned: true, .. }
        ));
    }
}

#[test]
fn a_policy_does_not_take_back_what_was_let_go_under_it() {
    let found = Found {
        let_go: true,
        ..FOUND
    };
    assert_eq!(adopt(&found, &ADOPTER), Adoption::Leave(Why::LetGo));
    for policy in POLICIES {
        let found = Found {
            let_go: true,
            ..released(policy, true)
        };
        assert_eq!(adopt(&found, &ADOPTER), Adoption::Leave(Why::LetGo), "{policy:?}");
    }
}

#[test]
fn what_two_policies_claim_is_adopted_by_neither() {
    let contested = Adopter {
        contested: true,
        ..ADOPTER
    };
    assert_eq!(adopt(&FOUND, &contested), Adoption::Leave(Why::Contested));
}

#[test]
fn what_cannot_be_read_adopts_nothing() {
    let unread = Found {
        remembered: Remembered::Unreadable,
        ..FOUND
    };
    assert_eq!(adopt(&unread, &ADOPTER), Adoption::Leave(Why::Unknown));
    let unknown = Found {
        recorded: Recorded::Unknown,
        ..FOUND
    };
    assert_eq!(adopt(&unknown, &ADOPTER), Adoption::Leave(Why::Unknown));
    assert_eq!(
        Why::ALL
            .map(Why::reason)
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        Why::ALL.len()
    );
}

/// Whatever the facts: adopted only if free, not another cluster's, of the same source; and never less kept than before.
#[test]
fn no_combination_adopts_what_it_must_not_or_keeps_it_less() {
    let identities = [
        MINE,
        Identity {
            hostname: "other",
            ..MINE
        },
    ];
    let remembered = POLICIES
        .iter()
        .flat_map(|policy| {
            [false, true].map(|pinned| Remembered::Released {
                policy: *policy,
                pinned,
            })
        })
        .chain([Remembered::Nothing, Remembered::Unreadable]);
    let (mut all, mut adopted) = (0, 0);
    for remembered in remembered {
        for tagged in [Tagged::Ours, Tagged::Another, Tagged::Nobody] {
            for recorded in [
                Recorded::Free,
                Recorded::ByObject,
                Recorded::CameBack,
                Recorded::Unknown,
            ] {
                for identity in identities {
                    for (own, shared, grants_hostname, policy) in identities.iter().flat_map(|own| {
                        [(false, false), (true, false), (true, true)]
                            .iter()
                            .flat_map(move |(s, g)| POLICIES.iter().map(move |p| (*own, *s, *g, *p)))
                    }) {
                        for (let_go, contested) in [(true, false), (false, true), (true, true)] {
                            let found = Found {
                                tagged,
                                recorded,
                                identity,
                                remembered,
                                pinned: false,
                                let_go,
                                taken_since: false,
                            };
                            let adopter = Adopter {
                                identity: own,
                                shared,
                                grants_hostname,
                                policy,
                                contested,
                                ..ADOPTER
                            };
                            assert!(matches!(adopt(&found, &adopter), Adoption::Leave(_)));
                        }
                        all += 1;
                        let found = Found {
                            tagged,
                            recorded,
                            identity,
                            remembered,
                            pinned: false,
                            let_go: false,
                            taken_since: false,
                        };
                        let adopter = Adopter {
                            identity: own,
                            shared,
                            grants_hostname,
                            policy,
                            ..ADOPTER
                        };
                        let Adoption::Adopt {
                            policy: becomes,
                            pinned,
                        } = adopt(&found, &adopter)
                        else {
                            continue;
                        };
                        adopted += 1;
                        assert!(tagged != Tagged::Another && recorded == Recorded::Free);
                        assert_eq!(identity, own);
                        assert!(!shared || grants_hostname || identity.hostname == "app");
                        assert_ne!(becomes, Policy::Unknown);
                        match remembered {
                            Remembered::Unreadable => panic!("adopted from a memory nobody read"),
                            Remembered::Nothing => assert!(!pinned),
                            Remembered::Released {
                                policy: before,
                                pinned: was,
                            } => {
                                assert_eq!(pinned, was);
                                assert!(becomes != Policy::Delete || before == Policy::Delete);
                            }
                        }
                        assert!(becomes != Policy::Delete || policy == Policy::Delete);
                    }
                }
            }
        }
    }
    println!("{all} combinations, {adopted} adopt");
    assert!(adopted > 100);
}

#[test]
fn with_the_name_of_the_cluster_a_host_name_is_of_its_namespace() {
    let identity = Identity {
        hostname: "app.lab",
        ..MINE
    };
    let adopter = Adopter {
        identity,
        shared: true,
        ..ADOPTER
    };
    assert!(matches!(
        adopt(&Found { identity, ..FOUND }, &adopter),
        Adoption::Adopt { .. }
    ));
    // Another cluster's namespace of this name is called otherwise.
    let theirs = Identity {
        hostname: "app.other",
        ..MINE
    };
    let found = Found {
        tagged: Tagged::Nobody,
        identity: theirs,
        ..FOUND
    };
    assert_eq!(adopt(&found, &adopter), Adoption::Leave(Why::OtherIdentity));
}
