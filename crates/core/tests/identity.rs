//! Whose snapshots are: names, expressions, and what an edit changes.
#![allow(clippy::unwrap_used)]

use holdfast_core::identity::{
    About, Defaults, InForce, Named, Own, asked, check_name, expression, in_force, is_cluster, namespace_of,
    recorded_namespace,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("team".to_owned(), "ops".to_owned())])
}

fn about<'a>(labels: &'a BTreeMap<String, String>, cluster: Option<&'a str>, shared: bool) -> About<'a> {
    About {
        namespace: "shop",
        policy: "web",
        labels: Some(labels),
        annotations: None,
        cluster,
        shared,
    }
}

fn named(username: &str, hostname: &str) -> Named {
    Named {
        username: username.to_owned(),
        hostname: hostname.to_owned(),
    }
}

#[test]
fn own_words_go_before_expressions_and_these_before_the_defaults() {
    let labels = labels();
    let plain = about(&labels, None, false);
    assert_eq!(
        asked(Own::default(), Defaults::default(), &plain),
        Ok(named("web", "shop"))
    );
    let with_cluster = about(&labels, Some("lab"), false);
    assert_eq!(
        asked(Own::default(), Defaults::default(), &with_cluster),
        Ok(named("web", "shop.lab"))
    );
    let expressions = Defaults {
        username: Some("namespace + '-' + policyName"),
        hostname: Some("has(labels.team) ? labels.team + '.' + cluster : namespace"),
    };
    assert_eq!(
        asked(Own::default(), expressions, &with_cluster),
        Ok(named("shop-web", "ops.lab"))
    );
    let own = Own {
        username: Some("me"),
        hostname: None,
    };
    assert_eq!(asked(own, expressions, &with_cluster), Ok(named("me", "ops.lab")));
}

#[test]
fn what_is_no_name_is_refused_with_its_field() {
    let labels = labels();
    let about = about(&labels, None, false);
    for (expression, part) in [
        ("", "is empty"),
        ("namespace +", "is not CEL"),
        (
            "name",
            "names name, which is not known: there are namespace, policyName",
        ),
        ("labels.owner", "cannot be evaluated"),
        ("1 + 1", "not a string"),
        ("''", "is empty"),
        ("'a\\nb'", "holds a control character"),
        ("'a@b'", "contains '@'"),
        ("['x'].map(namespace, 'a')[0]", "uses a loop"),
        ("labels.exists(k, k == 'team') ? 'a' : 'b'", "uses a loop"),
        ("nothing(namespace)", "cannot be evaluated"),
    ] {
        let defaults = Defaults {
            username: Some(expression),
            hostname: None,
        };
        let why = asked(Own::default(), defaults, &about).unwrap_err();
        assert!(why.starts_with("spec.identityDefaults.usernameExpr"), "{why}");
        assert!(why.contains(part), "{expression}: {why}");
    }
    for name in ["", "a@b", "a:b", "a/b", "-a", " a", "a\u{7}", &"a".repeat(254)] {
        let own = Own {
            username: None,
            hostname: Some(name),
        };
        let why = asked(own, Defaults::default(), &about).unwrap_err();
        assert!(why.starts_with("spec.identity.hostname"), "{why}");
    }
    assert_eq!(check_name("Ops Team"), Ok(()));
}

#[test]
fn the_reserved_word_of_the_interface_is_a_variable_and_text_is_left_alone() {
    let labels = BTreeMap::from([("namespace".to_owned(), "label".to_owned())]);
    let about = about(&labels, None, false);
    for (text, said) in [
        ("namespace", "shop"),
        ("(namespace)+'-'+namespace", "shop-shop"),
        ("'namespace'", "namespace"),
        ("\"a namespace\" + namespace", "a namespaceshop"),
        ("'it\\'s namespace' + namespace", "it's namespaceshop"),
        ("r'\\' + namespace + 'namespace'", "\\shopnamespace"),
        ("labels.namespace", "label"),
        ("labels . namespace + namespace", "labelshop"),
        ("labels['namespace']", "label"),
        ("namespace // namespace's\n + '.namespace'", "shop.namespace"),
    ] {
        assert_eq!(expression::say(text, &about), Ok(said.to_owned()), "{text}");
    }
    for text in ["__namespace__", "'''namespace'''", "namespaces"] {
        assert!(expression::check(text).is_err(), "{text}");
    }
}

#[test]
fn in_a_shared_repository_no_words_make_a_host_name_another_namespaces() {
    let labels = labels();
    let shared = about(&labels, Some("lab"), true);
    for (hostname, ours) in [
        ("shop", true),
        ("shop.lab", true),
        ("bank", false),
        ("bank.lab", false),
        ("shop.other", false),
        ("lab", false),
        ("shoplab", false),
    ] {
        let own = Own {
            username: None,
            hostname: Some(hostname),
        };
        let quoted = format!("'{hostname}'");
        let defaults = Defaults {
            username: None,
            hostname: Some(&quoted),
        };
        for (said, field) in [
            (
                asked(own, Defaults::default(), &shared),
                "spec.identity.hostname says",
            ),
            (
                asked(Own::default(), defaults, &shared),
                "spec.identityDefaults.hostnameExpr says",
            ),
        ] {
            match said {
                Ok(named) => assert!(ours && named.hostname == hostname, "{hostname}"),
                Err(why) => assert!(!ours && why.starts_with(field), "{hostname}: {why}"),
            }
        }
    }
    assert_eq!(namespace_of("shop.lab", Some("lab")), "shop");
    assert_eq!(namespace_of("shop.lab", None), "shop.lab");
    assert_eq!(namespace_of("shoplab", Some("lab")), "shoplab");
    // The cluster's own name says no other namespace.
    assert_eq!(namespace_of("a.b.lab", Some("lab")), "a.b");
}

#[test]
fn an_edit_does_not_rename_what_bears_a_name_until_a_person_says_so() {
    let (old, new) = (named("web", "shop"), named("me", "shop"));
    let asks = |named: &Named| Ok(named.clone());
    assert_eq!(in_force(asks(&new), None, false), Ok(InForce::Asked(new.clone())));
    assert_eq!(
        in_force(asks(&old), Some(old.clone()), false),
        Ok(InForce::Asked(old.clone()))
    );
    let kept = in_force(asks(&new), Some(old.clone()), false).unwrap();
    assert_eq!(kept.named(), &old);
    assert!(matches!(kept, InForce::Kept { .. }));
    // An expression that fails is no reason to stop what has a name.
    for allowed in [false, true] {
        let kept = in_force(Err("no".to_owned()), Some(old.clone()), allowed).unwrap();
        assert_eq!(kept.named(), &old);
    }
    assert_eq!(in_force(Err("no".to_owned()), None, true), Err("no".to_owned()));
    assert_eq!(in_force(asks(&new), Some(old), true), Ok(InForce::Asked(new)));
}

#[test]
fn what_was_recorded_names_its_namespace_whatever_the_repository_says_by_now() {
    for hostname in ["shop", "shop.lab", "shop.lab.old"] {
        assert_eq!(recorded_namespace(hostname), "shop");
    }
    assert_eq!(recorded_namespace("shoplab"), "shoplab");
}

#[test]
fn a_cluster_is_one_label_of_a_host_name() {
    for (name, is) in [
        ("lab", true),
        ("lab-2", true),
        ("", false),
        ("a.b", false),
        ("Lab", false),
        ("-a", false),
        ("a-", false),
    ] {
        assert_eq!(is_cluster(name), is, "{name}");
    }
    assert!(is_cluster(&"a".repeat(32)) && !is_cluster(&"a".repeat(33)));
}

#[test]
fn nothing_deep_long_or_repeated_is_evaluated() {
    let doubling = format!("{}[0]", "['x'].map(a, a + a)".repeat(2));
    for text in [
        "(".repeat(1000),
        "a".repeat(1025),
        format!("namespace{}", " + namespace".repeat(25)),
        format!("{}true", "!".repeat(900)),
        format!("{}'x'", "true ? 'a' : ".repeat(9)),
        doubling,
    ] {
        assert!(expression::check(&text).is_err(), "{text}");
    }
    // What is allowed is answered, on the stack of a thread.
    let labels = labels();
    let about = about(&labels, None, false);
    for (text, said) in [
        (
            format!("{}namespace{}", "(".repeat(8), ")".repeat(8)),
            "shop".to_owned(),
        ),
        (
            format!("namespace{}", " + namespace".repeat(24)),
            "shop".repeat(25),
        ),
        (format!("{}'b'", "false ? 'a' : ".repeat(8)), "b".to_owned()),
        (format!("{}'x'", "'x' + ".repeat(23)), "x".repeat(24)),
    ] {
        assert_eq!(expression::say(&text, &about), Ok(said), "{text}");
    }
    let deep = format!("{}namespace{}", "(".repeat(9), ")".repeat(9));
    assert!(expression::check(&deep).is_err());
    let many = format!("{}true ? 'a' : 'b'", "!".repeat(20));
    assert!(expression::say(&many, &about).is_ok());
}

#[test]
fn a_chain_of_words_is_as_deep_as_one_of_signs() {
    // On a small stack, where a tree that deep would end the process.
    let asked = std::thread::Builder::new().stack_size(512 * 1024).spawn(|| {
        let labels = labels();
        let about = about(&labels, None, false);
        for chain in [
            "1 in ", "1in ", "1\tin\n", "0x1in ", "1uin ", "1e1in ", "a'\\'in ",
        ] {
            let most = 1024 / chain.len() - 1;
            let text = format!("{}1", chain.repeat(most));
            let why = expression::check(&text).unwrap_err();
            assert!(why.contains("operators, dots and brackets"), "{why}");
            let within = format!("{}1", chain.repeat(8));
            assert!(expression::say(&within, &about).is_err(), "no name, and no crash");
        }
        // A longer word is none.
        let text = format!("'{}'", "inn ".repeat(60).trim());
        assert!(expression::say(&text, &about).is_ok());
        let text = "'team' in labels ? 'an inn' : namespace";
        assert_eq!(expression::say(text, &about), Ok("an inn".to_owned()));
    });
    asked.unwrap().join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn whatever_is_written_is_answered(text in "[a-z0-9 '\"+.?:(){},\\[\\]\\\\!=<>&|@\u{0}\u{7f}é-]{0,80}") {
        let labels = labels();
        let about = about(&labels, Some("lab"), true);
        let defaults = Defaults { username: Some(&text), hostname: None };
        if let Ok(named) = asked(Own::default(), defaults, &about) {
            prop_assert!(check_name(&named.username).is_ok());
        }
    }
}

#[test]
fn what_an_expression_names_is_read_and_not_searched_for() {
    let names = |text: &str| expression::names(text, "cluster");
    assert!(names("cluster") && names("has(labels.a) ? labels.a : namespace + cluster"));
    for text in [
        "'cluster'",
        "labels.cluster",
        "namespace // cluster",
        "cluster +",
        "labels['cluster']",
    ] {
        assert!(!names(text), "{text}");
    }
}
