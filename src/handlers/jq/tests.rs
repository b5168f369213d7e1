use std::sync::Arc;

use super::*;

async fn run(code: &str, input: &str) -> Result<String, String> {
    let jq = Jq::compile("transform", code, &["$event"]).unwrap_or_else(|error| panic!("{code}: {error}"));
    let input = input.to_owned();
    run_apart(&Arc::default(), move || {
        let event = read(br#"{"provider":"stripe"}"#)?;
        let value = jq.run(read(input.as_bytes())?, vec![event])?;
        write(&value).map(|text| String::from_utf8(text).unwrap())
    })
    .await
    .expect("the work ends")
}

#[tokio::test]
async fn values_are_filtered_and_numbers_keep_their_digits() {
    let ok = |text: &str| Ok(text.to_owned());
    let exact = r#"{"id":9223372036854775807,"big":123456789012345678901234567890,"cents":10.10,"e":1.50e3}"#;
    for (code, input, expected) in [
        (".", exact, ok(exact)),
        ("{id, cents}", exact, ok(r#"{"id":9223372036854775807,"cents":10.10}"#)),
        (".id + 1", exact, ok("9223372036854775808")),
        (".big * 2", exact, ok("246913578024691357802469135780")),
        (".cents > 10", exact, ok("true")),
        (".a * .b", r#"{"a":3,"b":1.5}"#, ok("4.5")),
        (".a *= 2 | .a", r#"{"a":"xy"}"#, ok(r#""xyxy""#)),
        (".a.b // \"none\"", "{}", ok(r#""none""#)),
        ("[.[] | select(. > 1)]", "[1,2,3]", ok("[2,3]")),
        (".[1:] |= map(. + 1)", "[1,2,3]", ok("[1,3,4]")),
        (
            "[range(0; 10; 3)], [range(3)] | length",
            "null",
            Err("it gives several values, and one is wanted".into()),
        ),
        ("[range(0; 10; 3)]", "null", ok("[0,3,6,9]")),
        ("[range(3; 0; -1)]", "null", ok("[3,2,1]")),
        ("$event.provider", "null", ok(r#""stripe""#)),
        (
            "walk(if type == \"number\" then . + 1 else . end)",
            "[1,[2]]",
            ok("[2,[3]]"),
        ),
        ("del(.a) | to_entries[0].key", r#"{"a":1,"b":2}"#, ok(r#""b""#)),
        ("def f: if . > 5000 then . else . + 1 | f end; f", "0", ok("5001")),
        (".a | fromjson | .b", r#"{"a":"{\"b\":1.00}"}"#, ok("1.00")),
        ("\"\\(.a)-\\(.b)\" | test(\"^1-x$\")", r#"{"a":1,"b":"x"}"#, ok("true")),
        ("empty", "1", Err("it gives nothing, and one value is wanted".into())),
        ("try error(\"x\") catch .", "1", ok(r#""x""#)),
    ] {
        let found = run(code, input).await;
        let expected = expected.map_err(|text: String| format!("`transform` failed: {text}"));
        assert_eq!(found, expected, "{code}");
    }
}

#[tokio::test]
async fn what_never_ends_is_ended() {
    let deep = format!("\"{}\"", "[".repeat(500_000));
    for (code, input, expected) in [
        ("def f: f; f", "1", "it "),
        ("def f: 1 + f; f", "1", "it "),
        ("def f: try f catch f; f", "1", "it "),
        ("[repeat(1)]", "1", "it "),
        ("[range(1e18)]", "1", "it "),
        ("last(range(0; 1; 0))", "1", "it "),
        ("until(false; .)", "1", "it "),
        (
            "[range(3000)] | [.[] as $a | .[] as $b | .[] as $c | 1] | length",
            "1",
            "it ",
        ),
        (
            ".a * .b",
            r#"{"a":"xxxxxxxxxx","b":1000000000000}"#,
            "a string is repeated too often",
        ),
        (
            ".a *= 1000000000000",
            r#"{"a":"xxxxxxxxxx"}"#,
            "a string is repeated too often",
        ),
        ("fromjson", &deep, "a text is not JSON"),
    ] {
        let error = run(code, input).await.expect_err(code);
        assert!(
            error.starts_with(&format!("`transform` failed: {expected}")),
            "{code}: {error}"
        );
    }
}

/// Doublings, of which a few dozen would take the memory of any machine.
#[tokio::test]
async fn what_grows_without_end_is_ended() {
    for (code, expected) in [
        ("reduce range(60) as $i (\"x\"; . + .)", "a string grows too long"),
        ("reduce range(60) as $i (\"x\"; . += .)", "a string grows too long"),
        (
            "reduce range(60) as $i (\"x\"; \"\\(.)\\(.)\")",
            "a string grows too long",
        ),
        (
            "reduce range(60) as $i (\"x\"; @base64 \"\\(.)\\(.)\")",
            "a string grows too long",
        ),
        (
            "reduce range(60) as $i (\"x\"; [., .] | add)",
            "a string grows too long",
        ),
        (
            "reduce range(60) as $i (\"x\"; [., .] | join(\",\"))",
            "a string grows too long",
        ),
        ("reduce range(60) as $i ([1]; . + .)", "an array grows too long"),
        ("reduce range(60) as $i ([1]; . += .)", "an array grows too long"),
        (
            "reduce range(60) as $i (12345678901234567890; . * .)",
            "an integer grows too long",
        ),
        ("reduce range(60) as $i ({}; {a: ., b: .}) | tojson", "more than 32MiB"),
        (
            "reduce range(60) as $i ({}; {a: ., b: .}) | tostring",
            "more than 32MiB",
        ),
        (
            "reduce range(60) as $i ({}; {a: ., b: .}) | \"\\(.)\"",
            "more than 32MiB",
        ),
        ("reduce range(2000) as $i (1; [.]) | tojson", "more than 1024 levels"),
    ] {
        let error = run(code, "1").await.expect_err(code);
        assert_eq!(error, format!("`transform` failed: {expected}"), "{code}");
    }
    for code in [
        "reduce range(60) as $i ({}; {a: ., b: .})",
        "reduce range(60) as $i ([]; [., .])",
    ] {
        assert_eq!(
            run(code, "1").await.expect_err(code),
            "it gives more than 32MiB",
            "{code}"
        );
    }
}

/// Sums, products and texts are made by code of ours, and are those of the language.
#[tokio::test]
async fn what_is_kept_within_bounds_is_the_same() {
    for (code, expected) in [
        ("[(1, 2) + (10, 20)]", "[11,21,12,22]"),
        ("[(1, 2) - (-10, -20)]", "[11,21,12,22]"),
        ("[(1, 2) * (10, 20)]", "[10,20,20,40]"),
        (
            r#"[1 + 1, null + 2, "a" + "b", [1] + [2], {a: 1} + {b: 2}]"#,
            r#"[2,2,"ab",[1,2],{"a":1,"b":2}]"#,
        ),
        (r#"try ("a" + 1) catch "no""#, r#""no""#),
        ("{a: 1, b: 2} | .a += 5 | .b += .a", r#"{"a":6,"b":8}"#),
        ("[{a: 1} | .a += (1, 10)]", r#"[{"a":2},{"a":11}]"#),
        (r#""\(1)-\("x")-\([1, {a: null}])""#, r#""1-x-[1,{\"a\":null}]""#),
        (r#"["\(1, 2)\(3, 4)"]"#, r#"["13","14","23","24"]"#),
        (r#"@json "v: \("x") \(1)""#, r#""v: \"x\" 1""#),
        (r#"@uri "q=\("a b")&\(1.50)""#, r#""q=a%20b&1.50""#),
        (r#"[1, "a", null] | map(tostring) | join("/")"#, r#""1/a/null""#),
        (
            "12345678901234567890 * 98765432109876543210",
            "1219326311370217952237463801111263526900",
        ),
        (r#"[range(2000) | tostring] | join(",") | length"#, "8889"),
        ("reduce range(2000) as $i ([]; . + [$i]) | length", "2000"),
    ] {
        assert_eq!(run(code, "{}").await.as_deref(), Ok(expected), "{code}");
    }
}

#[tokio::test]
async fn what_is_not_json_is_refused_both_ways() {
    for bad in [
        "",
        "{",
        "NaN",
        "{a:1}",
        "1 2",
        "b\"x\"",
        "# comment\n1",
        &"[".repeat(5_000),
        &"9".repeat(1_001),
    ] {
        assert!(run(".", bad).await.is_err(), "{bad}");
    }
    assert_eq!(run(".", &"9".repeat(1_000)).await.unwrap(), "9".repeat(1_000));
    for code in [
        "nan",
        "infinite",
        "{(1|tostring): nan}",
        "reduce range(2000) as $i (1; [.])",
    ] {
        let error = run(code, "1").await.expect_err(code);
        assert!(error.starts_with("it gives "), "{code}: {error}");
    }
}

#[tokio::test]
async fn errors_repeat_no_value_of_the_payload() {
    let error = run(".a.b", r#"{"a":[{"card":"4242"}]}"#).await.unwrap_err();
    assert!(
        error.starts_with("`transform` failed: cannot index") && !error.contains("4242"),
        "{error}"
    );
    assert_eq!(
        run("error(\"no amount\")", "1").await.unwrap_err(),
        "`transform` failed: no amount"
    );
}

#[test]
fn mistakes_are_found_at_the_start_with_their_place() {
    for (code, expected) in [
        (".a |", "`when`: line 1, column 5: expected term, found the end"),
        ("(.a", "`when`: line 1, column 4: expected closing parenthesis"),
        (".a\n| nope(1)", "`when`: line 2, column 3: there is no filter nope/1"),
        ("$unknown.a", "`when`: line 1, column 1: there is no variable $unknown"),
        ("env.HOME", "`when`: line 1, column 1: there is no filter env/0"),
        ("halt", "`when`: line 1, column 1: there is no filter halt/0"),
        ("input", "`when`: line 1, column 1: there is no filter input/0"),
        ("", "`when`: "),
    ] {
        let error = Jq::compile("when", code, &["$event"]).err().expect(code);
        assert!(error.starts_with(expected), "{code}: {error}");
    }
}
