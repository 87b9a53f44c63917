/* SPDX-License-Identifier: MIT
 *
 * test_schema.c: every keyword of JSON Schema, with texts that fit and texts that do not; and what is refused, with its
 * place. The official test suite and thousands of real schemas are in golden/grammars.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "small_trie.h"

struct judged {
    const char *schema;
    const char *fit[8], *misfit[12];
};

static void check_with(const struct judged *cases, size_t n, const struct grammar_options *o)
{
    for (size_t i = 0; i < n; i++) {
        struct grammar *g = grammar_of(cases[i].schema, o);
        assert_non_null(g);
        for (int k = 0; k < 8 && cases[i].fit[k]; k++)
            if (!fits(g, cases[i].fit[k])) fail_msg("refused: %s by %s", cases[i].fit[k], cases[i].schema);
        for (int k = 0; k < 12 && cases[i].misfit[k]; k++)
            if (fits(g, cases[i].misfit[k])) fail_msg("accepted: %s by %s", cases[i].misfit[k], cases[i].schema);
        grammar_free(g);
    }
}

#define CHECK(cases) check_with(cases, sizeof(cases) / sizeof(cases)[0], NULL)

static void types_and_values(void **state)
{
    (void)state;
    static const struct judged cases[] = {
        {"true", {"1", "\"\"", "[]", "{}", "null", "{\"a\":[true]}"}, {"", " 1", "01", "tru", "1 ", "{,}", "[1,]"}},
        {"{\"type\":\"integer\"}", {"0", "-5", "120"}, {"1.0", "01", "-", "1e2", "\"1\"", "null", "-01"}},
        {"{\"type\":\"number\"}", {"0", "-5.25", "1e5", "1.5E-3"}, {"1.", ".5", "1e", "+1", "0x1"}},
        {"{\"type\":[\"string\",\"null\"]}", {"null", "\"a\""}, {"1", "nul", "a"}},
        {"{\"type\":\"boolean\"}", {"true", "false"}, {"1", "\"true\"", "truefalse"}},
        {"{\"enum\":[1,\"a\",null,[1],{\"b\":2}]}",
         {"1", "\"a\"", "null", "[1]", "{\"b\":2}"},
         {"2", "\"b\"", "[]", "{}", "[2]", "{\"b\":3}", "1.0"}},
        {"{\"const\":\"a\\\"\\n\\u0001\"}",
         {"\"a\\\"\\n\\u0001\""},
         {"\"a\"", "\"a\\\"\\n\"", "\"\\u0061\\\"\\n\\u0001\""}},
        {"{\"const\":0.1}", {"0.1"}, {"0.10", "0.11", "0"}},
        {"{\"not\":{\"type\":[\"integer\",\"object\",\"array\"]}}", {"1.5", "\"a\"", "null"}, {"1", "1.0", "{}", "[]"}},
        {"{\"not\":{\"enum\":[1,\"a\",true]}}", {"2", "\"b\"", "false", "{}", "1.5"}, {"1", "1.0", "\"a\"", "true"}},
    };
    CHECK(cases);
}

static void strings(void **state)
{
    (void)state;
    static const struct judged cases[] = {
        {"{\"type\":\"string\"}",
         {"\"\"", "\"\\u00e9\\n\\/\"", "\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\"", "\"\x7F\""},
         {"\"\\ud83d\"", "\"\\ude00\"", "\"\n\"", "\"\\x\"", "\"\xC3\"", "\"\xED\xA0\x80\"", "\"\xFF\"",
          "\"\\ud83d\\n\"", "\"a", "\"\\ud83d\\ud83d\""}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\xC3\xA9\xC3\xA9\xC3\xA9\"", "\"\\ud83d\\ude00a\""},
         {"\"a\"", "\"abcd\"", "\"\"", "\"\\ud83d\\ude00\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-c]+$\"}", {"\"abc\""}, {"\"\"", "\"abd\"", "\"xabc\"", "\"\\u0061\""}},
        {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"abc\"", "\"b\"", "\"\\nb\\\"\""}, {"\"ac\"", "\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", {"\"ax\"", "\"xb\"", "\"a\""}, {"\"xa\"", "\"bx\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(?!ab)[a-z]+$\"}", {"\"ba\"", "\"aab\""}, {"\"ab\"", "\"abc\"", "\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(?=.*[0-9])(?=.*[a-z]).{2,4}$\"}",
         {"\"a1\"", "\"1xxa\""},
         {"\"aa\"", "\"11\"", "\"a\"", "\"aaaa1\""}},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\p{Lu}\\\\d\\\\s$\"}",
         {"\"\xC3\x89"
          "1 \""},
         {"\"a1 \"", "\"A1\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[^\\\\\\\\\\\"]$\"}", {"\"a\"", "\"\\n\""}, {"\"\\\\\"", "\"\\\"\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"a\"},\"maxLength\":2}",
         {"\"bb\"", "\"\""},
         {"\"ab\"", "\"bbb\"", "\"ba\""}},
    };
    CHECK(cases);
}

static void formats(void **state)
{
    (void)state;
    static const struct judged cases[] = {
        {"{\"format\":\"date\"}",
         {"\"2024-02-29\"", "\"2000-02-29\"", "1"},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"", "\"24-01-01\""}},
        {"{\"format\":\"time\"}",
         {"\"23:59:60Z\"", "\"00:00:00.5+05:30\""},
         {"\"24:00:00Z\"", "\"00:00:00\"", "\"12:59:60Z\""}},
        {"{\"format\":\"date-time\"}",
         {"\"2024-01-01T00:00:00Z\""},
         {"\"2024-01-01 00:00:00Z\"", "\"2024-01-01T00:00Z\""}},
        {"{\"format\":\"duration\"}",
         {"\"P1Y2M3DT4H5M6S\"", "\"P2W\"", "\"PT1S\""},
         {"\"P\"", "\"PT\"", "\"P1Y1D\"", "\"P1W1D\"", "\"1D\""}},
        {"{\"format\":\"email\"}",
         {"\"a.b+c@ex-1.org\"", "\"\\\"a b\\\"@x.y\""},
         {"\"a@\"", "\"@b\"", "\"a..b@c\"", "\"a@-b.c\"", "\"ab\""}},
        {"{\"format\":\"hostname\"}",
         {"\"a.b-c\"", "\"localhost\""},
         {"\"-a\"", "\"a-\"", "\"a..b\"", "\"a_b\"", "\"\"", "\"xn--a\"", "\"a.XN--b\""}},
        {"{\"format\":\"ipv4\"}",
         {"\"0.0.0.0\"", "\"255.255.255.255\""},
         {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
        {"{\"format\":\"ipv6\"}",
         {"\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"1::8\"", "\"::ffff:1.2.3.4\"", "\"1:2:3:4:5:6:7::\""},
         {"\"1\"", "\":::\"", "\"1:2:3:4:5:6:7:8:9\"", "\"12345::\"", "\"1::2::3\""}},
        {"{\"format\":\"uri\"}",
         {"\"http://a.b/c?d=%20#e\"", "\"mailto:x@y\"", "\"a:\"", "\"x://[::1]:80/\""},
         {"\"/a\"", "\"http://a b\"", "\"%20\"", "\"a:%2\""}},
        {"{\"format\":\"uri-reference\"}", {"\"/a\"", "\"\"", "\"#f\"", "\"a/b:c\""}, {"\"\\\\\\\\\"", "\"a b\""}},
        {"{\"format\":\"iri\"}", {"\"http://\xC3\xA9/\xC3\xA9\""}, {"\"\xC3\xA9\""}},
        {"{\"format\":\"uuid\"}",
         {"\"2EB8AA08-aa98-11ea-b4aa-73b441d16380\""},
         {"\"2EB8AA08-aa98-11ea-b4aa-73b441d1638\"", "\"2EB8AA08aa9811eab4aa73b441d16380\""}},
        {"{\"format\":\"json-pointer\"}", {"\"\"", "\"/a~0b/~1\""}, {"\"a\"", "\"/~2\"", "\"/~\""}},
        {"{\"type\":\"integer\",\"format\":\"int32\"}", {"2147483647", "-2147483648"}, {"2147483648", "-2147483649"}},
    };
    CHECK(cases);
}

static void numbers(void **state)
{
    (void)state;
    static const struct judged cases[] = {
        {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120}",
         {"-5", "0", "99", "120", "12"},
         {"-6", "121", "1000", "130", "-50"}},
        {"{\"type\":\"number\",\"minimum\":0.1,\"exclusiveMaximum\":0.3}",
         {"0.1", "0.2", "0.29999", "0.10"},
         {"0.09", "0.3", "0.30", "0", "1", "0.0999999999999999999999"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0}", {"0.001", "1e-5", "3"}, {"0", "-0", "0.0", "-1", "0e5"}},
        {"{\"type\":\"number\",\"maximum\":0}", {"0", "-0", "-3e7", "0.0"}, {"0.1", "1"}},
        {"{\"type\":\"number\",\"maximum\":-1.5}", {"-1.5", "-2", "-10"}, {"-1.4", "-1", "0", "1.5"}},
        {"{\"type\":\"integer\",\"multipleOf\":7}", {"0", "7", "-21", "700"}, {"1", "8", "71"}},
        {"{\"type\":\"number\",\"multipleOf\":0.01}", {"0.01", "19.99", "3", "1.10", "0.5"}, {"0.001", "1.999"}},
        {"{\"type\":\"integer\",\"multipleOf\":3,\"minimum\":10,\"maximum\":13}",
         {"12"},
         {"9", "10", "13", "15", "120"}},
        {"{\"$schema\":\"http://json-schema.org/draft-04/"
         "schema#\",\"type\":\"integer\",\"minimum\":3,\"exclusiveMinimum\":true}",
         {"4"},
         {"3", "2"}},
        {"{\"type\":\"integer\",\"minimum\":9223372036854775807}",
         {"9223372036854775807", "10000000000000000000"},
         {"9223372036854775806"}},
        {"{\"type\":\"number\",\"not\":{\"minimum\":3}}", {"2.9", "-3"}, {"3", "30", "2e5"}},
    };
    CHECK(cases);
}

static void objects(void **state)
{
    (void)state;
    static const struct judged cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{},\"c\":{}},\"required\":[\"b\"],"
         "\"additionalProperties\":false}",
         {"{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"b\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":null}"},
         {"{}", "{\"a\":1}", "{\"b\":1,\"a\":1}", "{\"a\":null,\"b\":1}", "{\"b\":1,\"d\":1}",
          "{\"a\":1,\"a\":1,\"b\":1}", "{\"b\":1,\"b\":1}", "{\"b\":1,}", "{\"b\": 1}"}},
        {"{\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":\"string\"}}",
         {"{\"a\":1,\"b\":\"x\"}", "{\"ab\":\"x\"}", "{\"\":\"\"}", "3"},
         {"{\"a\":\"x\"}", "{\"b\":1}", "{\"\\u0061\":\"x\"}"}},
        {"{\"type\":\"object\",\"required\":[\"x\\\"y\",\"z\"]}", {"{\"x\\\"y\":1,\"z\":2}"}, {"{\"z\":2}", "{}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"number\"},\"s$\":{\"type\":\"string\"}},"
         "\"additionalProperties\":false,\"properties\":{\"name\":{\"minimum\":2}}}",
         {"{\"n1\":1}", "{\"xs\":\"a\"}", "{\"name\":2}", "{}"},
         {"{\"n1\":\"a\"}", "{\"ns\":1}", "{\"ns\":\"a\"}", "{\"x\":1}", "{\"name\":1}", "{\"name\":\"a\"}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[ab]+$\"},\"properties\":{\"c\":{}}}",
         {"{\"ab\":1}", "{}"},
         {"{\"c\":1}", "{\"abc\":1}"}},
        {"{\"type\":\"object\",\"minProperties\":2,\"maxProperties\":3,\"properties\":{\"a\":{}},"
         "\"additionalProperties\":{\"type\":\"integer\"}}",
         {"{\"a\":1,\"b\":1}", "{\"b\":1,\"c\":2,\"d\":3}"},
         {"{}", "{\"a\":1}", "{\"a\":1,\"b\":1,\"c\":1,\"d\":1}", "{\"b\":1,\"b\":2}", "{\"\":1,\"\":2}"}},
        {"{\"type\":\"object\",\"minProperties\":2,\"properties\":{\"a\":{},\"b\":{},\"c\":{}},"
         "\"additionalProperties\":false}",
         {"{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}"},
         {"{\"a\":1}", "{\"c\":1}"}},
        {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]},\"properties\":{\"a\":{},\"b\":{}}}",
         {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
         {"{\"a\":1}"}},
        {"{\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":{\"const\":1}}}},\"properties\":{\"a\":{}}}",
         {"{\"b\":2}", "{\"a\":1,\"b\":1}", "5"},
         {"{\"a\":1,\"b\":2}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":{}}}", {"{\"b\":1}", "{}"}, {"{\"a\":1}"}},
        {"{\"type\":\"object\",\"minProperties\":2,\"patternProperties\":{\"^[ab]$\":{\"type\":\"integer\"}},"
         "\"additionalProperties\":false}",
         {"{\"a\":1,\"b\":2}", "{\"b\":1,\"a\":2}"},
         {"{\"a\":1,\"a\":2}", "{\"a\":1}", "{\"a\":1,\"c\":2}"}},
    };
    CHECK(cases);
}

static void arrays(void **state)
{
    (void)state;
    static const struct judged cases[] = {
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
         {"[1]", "[1,2,3]"},
         {"[]", "[1,2,3,4]", "[\"a\"]", "[1,]", "[1, 2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3}}",
         {"[]", "[1]", "[1,2,3,3]"},
         {"[2]", "[1,3]", "[1,2,4]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":false,\"minItems\":1}",
         {"[1]"},
         {"[]", "[1,1]"}},
        {"{\"$schema\":\"http://json-schema.org/draft-07/"
         "schema#\",\"type\":\"array\",\"items\":[{\"const\":1}],\"additionalItems\":{\"const\":2}}",
         {"[1,2,2]", "[]"},
         {"[2]", "[1,1]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"const\":5}}",
         {"[5]", "[1,5]", "[5,1,5]"},
         {"[]", "[1]", "[1,2]"}},
        {"{\"type\":\"array\",\"contains\":{\"const\":5},\"minContains\":2,\"maxContains\":3,\"items\":{\"type\":"
         "\"integer\"}}",
         {"[5,5]", "[1,5,2,5,5]"},
         {"[5]", "[5,5,5,5]"}},
        {"{\"type\":\"array\",\"contains\":{\"const\":5},\"maxItems\":2,\"items\":{\"type\":\"integer\"}}",
         {"[1,5]", "[5]"},
         {"[1,1]", "[1,2,5]"}},
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",1,11,true]},\"uniqueItems\":true}",
         {"[]", "[\"a\",1,true,\"b\",11]"},
         {"[\"a\",\"a\"]", "[1,11,1]", "[true,true]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"string\"]},\"uniqueItems\":true,\"minItems\":2}",
         {"[1,10,\"1\"]", "[0.5,0.05]"},
         {"[1,1]", "[\"a\",\"\\u0061\"]", "[1]", "[1,1.0]", "[\"\",\"\"]"}},
        {"{\"not\":{\"items\":{\"type\":\"integer\"}},\"type\":\"array\"}", {"[1,\"a\"]", "[null]"}, {"[]", "[1,2]"}},
    };
    CHECK(cases);
}

static void combinations(void **state)
{
    (void)state;
    static const struct judged cases[] = {
        {"{\"allOf\":[{\"minimum\":3},{\"maximum\":5},{\"type\":\"integer\"}]}", {"3", "5"}, {"2", "6", "\"a\""}},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
         {"12", "\"a\""},
         {"\"ab\"", "null"}},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2,\"type\":\"number\"}]}", {"1", "2.5"}, {"3", "1.5"}},
        {"{\"type\":\"object\",\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"properties\":{\"a\":{},"
         "\"b\":{}}}",
         {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"c\":1}"},
         {"{}", "{\"a\":1,\"b\":1}"}},
        {"{\"oneOf\":[{\"properties\":{\"t\":{\"const\":\"x\"},\"v\":{\"type\":\"integer\"}},\"required\":[\"t\",\"v\"]"
         ",\"type\":\"object\",\"additionalProperties\":false},{\"properties\":{\"t\":{\"const\":\"y\"}},\"required\":["
         "\"t\"],\"type\":\"object\",\"additionalProperties\":false}]}",
         {"{\"t\":\"x\",\"v\":1}", "{\"t\":\"y\"}"},
         {"{\"t\":\"y\",\"v\":1}", "{\"t\":\"x\"}", "{\"t\":\"z\"}"}},
        {"{\"if\":{\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"]},\"then\":{\"required\":[\"x\"]},"
         "\"else\":{\"required\":[\"y\"]},\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"}}}",
         {"{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\",\"y\":1}", "{\"y\":1}"},
         {"{\"k\":\"a\",\"y\":1}", "{\"k\":\"b\",\"x\":1}", "{}"}},
        {"{\"not\":{\"required\":[\"a\",\"b\"]},\"type\":\"object\"}",
         {"{}", "{\"a\":1}", "{\"c\":1}"},
         {"{\"a\":1,\"b\":1}"}},
        {"{\"not\":{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":3}]}}", {"1", "-2.5"}, {"\"a\"", "4", "null"}},
        {"{\"not\":{\"oneOf\":[{\"minimum\":3},{\"maximum\":5}]},\"type\":\"integer\"}", {"3", "4", "5"}, {"2", "6"}},
        {"{\"not\":{\"not\":{\"type\":\"string\"}}}", {"\"a\""}, {"1"}},
    };
    CHECK(cases);
}

static void references(void **state)
{
    (void)state;
    static const struct judged cases[] = {
        {"{\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"l\":{\"$ref\":\"#/"
         "$defs/t\"}},\"additionalProperties\":false}},\"$ref\":\"#/$defs/t\"}",
         {"{}", "{\"v\":1,\"l\":{\"l\":{\"v\":2}}}"},
         {"{\"l\":1}", "{\"l\":{\"x\":1}}"}},
        {"{\"$ref\":\"#\"}", {"1", "[{}]"}, {"x"}},
        {"{\"$defs\":{\"a\":{\"$anchor\":\"q\",\"type\":\"null\"}},\"$ref\":\"#q\"}", {"null"}, {"1"}},
        {"{\"$id\":\"http://x/a/b\",\"$defs\":{\"c\":{\"$id\":\"../"
         "d\",\"const\":1}},\"properties\":{\"p\":{\"$ref\":\"/d\"},\"q\":{\"$ref\":\"http://x/d#\"}}}",
         {"{\"p\":1,\"q\":1}"},
         {"{\"p\":2}", "{\"q\":2}"}},
        {"{\"properties\":{\"a~b/c%\":{\"type\":\"null\"},\"x\":{\"$ref\":\"#/properties/a~0b~1c%25\"}}}",
         {"{\"x\":null}"},
         {"{\"x\":1}"}},
        {"{\"$schema\":\"http://json-schema.org/draft-07/"
         "schema#\",\"definitions\":{\"a\":{\"type\":\"null\"}},\"properties\":{\"x\":{\"$ref\":\"#/definitions/"
         "a\",\"type\":\"string\"}}}",
         {"{\"x\":null}"},
         {"{\"x\":\"a\"}"}},
        {"{\"properties\":{\"x\":{\"$ref\":\"#/$defs/a\",\"maxLength\":1}},\"$defs\":{\"a\":{\"type\":\"string\"}}}",
         {"{\"x\":\"a\"}"},
         {"{\"x\":\"ab\"}", "{\"x\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"n\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}},\"required\":["
         "\"n\"],\"additionalProperties\":false}",
         {"{\"n\":null}", "{\"n\":{\"n\":null}}"},
         {"{}", "{\"n\":{}}"}},
    };
    CHECK(cases);
}

static void unevaluated(void **state)
{
    (void)state;
    static const struct judged cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"allOf\":[{\"properties\":{\"b\":{}}}],"
         "\"unevaluatedProperties\":false}",
         {"{\"a\":1,\"b\":1}"},
         {"{\"c\":1}"}},
        {"{\"type\":\"object\",\"anyOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{\"properties\":{"
         "\"b\":{\"const\":1}},\"required\":[\"b\"]}],\"unevaluatedProperties\":false}",
         {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
         {"{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":1}", "{}"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"allOf\":[{\"prefixItems\":[true,{\"const\":2}]}],"
         "\"unevaluatedItems\":false}",
         {"[1,2]", "[1]"},
         {"[1,3]", "[1,2,3]"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{}},\"unevaluatedProperties\":{\"type\":\"integer\"}}",
         {"{\"x\":\"a\",\"y\":1}"},
         {"{\"y\":\"a\"}"}},
    };
    CHECK(cases);
}

static void names_in_any_order(void **state)
{
    (void)state;
    static const struct judged cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{\"const\":3}},"
         "\"required\":[\"a\",\"b\"],\"additionalProperties\":{\"const\":4}}",
         {"{\"b\": 2, \"a\": 1}", "{\"c\":3,\"d\":4,\"b\":2, \"a\":1}", "{\"a\":1,\"b\":2,\"x\":4,\"c\":3}"},
         {"{\"b\":2}", "{\"b\":2,\"b\":2,\"a\":1}", "{\"a\":2,\"b\":1}", "{\"a\":1,\"b\":2,\"c\":4}",
          "{\"a\":  1,\"b\":2}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2,\"maxProperties\":2,"
         "\"additionalProperties\":false}",
         {"{\"c\":1,\"a\":1}"},
         {"{\"c\":1}", "{\"c\":1,\"b\":1,\"a\":1}"}},
    };
    check_with(cases, sizeof cases / sizeof cases[0], &(struct grammar_options){.any_order = true, .spaces = true});
}

static void spaces_are_optional_where_they_are_allowed(void **state)
{
    (void)state;
    static const struct judged cases[] = {
        {"{\"type\":\"object\"}",
         {"{\"a\": 1, \"b\":[1,2, 3]}", "{}", "{\"a\":1,\"b\":2}"},
         {"{ }", "{ \"a\":1}", "{\"a\" :1}", "{\"a\":  1}", "{\"a\":[1 ,2]}"}},
    };
    check_with(cases, 1, &(struct grammar_options){.spaces = true});
}

/* ---- what is refused ---- */

static void refuses(const char *schema, int code, const char *words)
{
    struct grammar *g = NULL;
    struct qn_error e = {0};
    json_t *j = json_loads(schema, JSON_DECODE_ANY, NULL);
    assert_non_null(j);
    int rc = grammar_from_schema(&g, j, NULL, &e);
    json_decref(j);
    if (rc != code || !strstr(e.msg, words)) fail_msg("%d '%s', wanted %d '%s'", rc, e.msg, code, words);
    assert_null(g);
}

static void refusals_name_the_place(void **state)
{
    (void)state;
    refuses("3", QN_EDATA, "/: a schema is an object");
    refuses("false", QN_EDATA, "no value fits the schema");
    refuses("{\"properties\":{\"a/b\":{\"type\":\"strnig\"}}}", QN_EDATA, "/properties/a~1b/type: ");
    refuses("{\"properties\":{\"a\":{\"pattern\":\"a(\"}}}", QN_EDATA,
            "/properties/a/pattern: character 3 of the pattern: ')' is missing");
    refuses("{\"properties\":{\"a\":{\"pattern\":\"(a)\\\\1\"}}}", QN_EUNSUP, "/properties/a/pattern: character 5");
    refuses("{\"allOf\":[{\"format\":\"colour\"}]}", QN_EUNSUP, "/allOf/0/format: the format 'colour' is not known");
    refuses("{\"$ref\":\"#/nowhere\"}", QN_EDATA, "/$ref: '#/nowhere' leads nowhere");
    refuses("{\"$ref\":\"http://x/y\"}", QN_EUNSUP, "/$ref: 'http://x/y' is in another document");
    refuses("{\"$schema\":\"http://x/y\"}", QN_EUNSUP, "/$schema: the draft 'http://x/y' is not known");
    refuses("{\"items\":{\"uniqueItems\":true,\"type\":\"array\"}}", QN_EUNSUP, "/items/uniqueItems: ");
    refuses("{\"items\":{\"$recursiveRef\":\"#\"}}", QN_EUNSUP, "/items/$recursiveRef: this keyword is not supported");
    refuses("{\"properties\":{\"x\":{\"not\":{\"additionalProperties\":{\"type\":\"null\"}}}}}", QN_EUNSUP,
            "/properties/x/not/additionalProperties: ");
    refuses("{\"type\":\"number\",\"multipleOf\":0}", QN_EDATA, "/multipleOf: ");
    refuses("{\"type\":\"number\",\"multipleOf\":123457}", QN_EUNSUP, "/multipleOf: ");
    refuses("{\"required\":\"a\"}", QN_EDATA, "/required: ");
    refuses("{\"minItems\":-1}", QN_EDATA, "/minItems: ");
    refuses("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", QN_EDATA,
            "no value fits");
    refuses("{\"type\":\"string\",\"pattern\":\"^a$\",\"minLength\":2}", QN_EDATA, "no value fits");
    refuses("{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", QN_EDATA, "no value fits");
    refuses("{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"uniqueItems\":true,\"minItems\":3}", QN_EDATA,
            "no value fits");
    refuses("{\"type\":\"object\",\"maxProperties\":1,\"required\":[\"a\",\"b\"]}", QN_EDATA, "no value fits");
}

static void hostile_schemas_reach_a_limit(void **state)
{
    (void)state;
    struct buf b = {0};
    double begin = cpu_seconds();
    for (int i = 0; i < 1500; i++) assert_int_equal(buf_str(&b, "{\"not\":", NULL), 0);
    assert_int_equal(buf_str(&b, "{}", NULL), 0);
    for (int i = 0; i < 1500; i++) assert_int_equal(buf_str(&b, "}", NULL), 0);
    refuses((char *)b.data, QN_EDATA, "nested more than");
    buf_clear(&b);
    /* 20 choices of two, all at once */
    assert_int_equal(buf_str(&b, "{\"type\":\"object\",\"allOf\":[", NULL), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(buf_printf(&b, NULL, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
                                    i ? "," : "", i, i),
                         0);
    assert_int_equal(buf_str(&b, "]}", NULL), 0);
    refuses((char *)b.data, QN_EUNSUP, "too many steps");
    refuses("{\"type\":\"string\",\"allOf\":[{\"pattern\":\"^(.*a.{300})+$\"},{\"pattern\":\"^(.*b.{301})+$\"},{"
            "\"pattern\":\"^(.*c.{500}){3}$\"}]}",
            QN_EUNSUP, "/pattern: the grammar is too complex");
    assert_true(cpu_seconds() - begin < 2 * TIME_SCALE);
    buf_deinit(&b);
}

static void a_list_of_many_numbers_takes_little_memory(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_int_equal(buf_str(&b, "{\"enum\":[0", NULL), 0);
    for (int i = 1; i < 9998; i++) assert_int_equal(buf_printf(&b, NULL, ",%d", i * 7), 0);
    assert_int_equal(buf_str(&b, ",0.125,-3]}", NULL), 0);
    const struct judged cases[] = {
        {(char *)b.data, {"0", "7", "69979", "70", "0.125", "-3"}, {"1", "69980", "69986", "07", "0.1", "-7", "3"}}};
    check_with(cases, 1, &(struct grammar_options){.memory_bytes = 4 << 20});
    buf_deinit(&b);
}

static void large_schemas_are_refused_before_they_cost_much(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_int_equal(buf_str(&b, "{\"properties\":{\"a\":{\"enum\":[0", NULL), 0);
    for (int i = 1; i <= 10000; i++) assert_int_equal(buf_printf(&b, NULL, ",%d", i), 0);
    assert_int_equal(buf_str(&b, "]}}}", NULL), 0);
    refuses((char *)b.data, QN_EUNSUP, "/properties/a/enum: it has 10001 values, at most 10000 are possible");
    buf_clear(&b);
    assert_int_equal(buf_str(&b, "{\"examples\":[[0", NULL), 0);
    for (int i = 1; i < 50000; i++) assert_int_equal(buf_str(&b, i % 9 ? ",0" : "],[0", NULL), 0);
    assert_int_equal(buf_str(&b, "]]}", NULL), 0);
    refuses((char *)b.data, QN_EUNSUP, "the schema has more than 50000 values");
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_and_values),
        cmocka_unit_test(strings),
        cmocka_unit_test(formats),
        cmocka_unit_test(numbers),
        cmocka_unit_test(objects),
        cmocka_unit_test(arrays),
        cmocka_unit_test(combinations),
        cmocka_unit_test(references),
        cmocka_unit_test(unevaluated),
        cmocka_unit_test(names_in_any_order),
        cmocka_unit_test(spaces_are_optional_where_they_are_allowed),
        cmocka_unit_test(refusals_name_the_place),
        cmocka_unit_test(hostile_schemas_reach_a_limit),
        cmocka_unit_test(a_list_of_many_numbers_takes_little_memory),
        cmocka_unit_test(large_schemas_are_refused_before_they_cost_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
