"""Queries over two tables: those of legal.sql, which Spark takes, and some with a mistake, which it refuses."""

from pathlib import Path

from headwater.pipelines.spec.schema_text import read_schema

TABLES = {
    "t": """id int, name string, amount double, price decimal(12,2), at timestamp, day date, tags array<string>,
        counts map<string, int>, place struct<city: string, at: struct<x: double, y: double>>,
        items array<struct<product: string, quantity: int>>, flag boolean, `odd name` int, raw binary""",
    "u": "id int, name string, rate double, since timestamp",
}
COLUMNS = {name: {each.name.lower(): each.name for each in read_schema(text).columns} for name, text in TABLES.items()}
LEGAL = (Path(__file__).with_name("legal.sql")).read_text().strip().split("\n\n")[1:]
ILLEGAL = {
    "selct * from t": "it is no SQL that Spark reads: look at “selct * from”.",
    "select * form t": "it is no SQL that Spark reads",
    "select id from t wher id > 1": "it is no SQL that Spark reads",
    "select count(* from t": "it is no SQL that Spark reads",
    "select id frm t": "it is no SQL that Spark reads",
    "select id from t order id": "it is no SQL that Spark reads",
    "select 'a from t": "it is no SQL",
    "select id, from t": "a comma too many stands before from",
    "select id,, name from t": "a comma too many stands before ,",
    "select upper(, name) from t": "a comma too many stands after (",
    "select from t": "it selects nothing",
    "select name from t group by": "its group by names nothing",
    "select nme from t": "there is no column nme. Did you mean name?",
    "select t.nme from t": "t has no column nme. Did you mean name?",
    "select x.id from t": "there is no column x.id.",
    "select id from t where nam = 1": "there is no column nam.",
    "select id from t order by nme": "there is no column nme.",
    "select sum(amout) over (partition by name) from t": "there is no column amout. Did you mean amount?",
    "select count(*) filter (where flg) from t": "there is no column flg.",
    "with x as (select id from t) select name from x": "there is no column name.",
    "select z from (select id from t)": "there is no column z.",
    "select a.id from t a join u b on a.id = b.idd": "b has no column idd. Did you mean id?",
    "select * from t join u using (idd)": "there is no column idd.",
    "select name from t where exists (select 1 from u where u.idd = t.id)": "u has no column idd.",
    "select * from t where id in (select idd from u)": "there is no column idd.",
    "select transform(tags, x -> y) from t": "there is no column y.",
    "select plac.city from t": "there is no column plac.city. Did you mean place?",
    "select uper(name) from t": "there is no function uper. Did you mean upper?",
    "select strpos(name, 'a') from t": "there is no function strpos.",
    "select cast(id as strng) from t": "there is no type strng. Did you mean string?",
    "select id::strng from t": "there is no type strng.",
    "select try_cast(id as decimal(50)) from t": "decimal takes a precision up to 38",
    "select 1; select 2": "it is more than one query",
}
