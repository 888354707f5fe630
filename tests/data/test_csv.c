/* Tables of labels: what is read, and what each wrong one is refused with. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/dataset/dataset.h"
#include "data/formats/csv_table.h"
#include "tests/support/caught.h"
#include "tests/support/files.h"
#include "tests/support/unit.h"

#define TABLE "labels.csv"

static void write_file(const char *path, const char *bytes, size_t count)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0 && write(file, bytes, count) == (ssize_t)count);
    close(file);
}

static void write_bytes(const char *bytes, size_t count) { write_file(TABLE, bytes, count); }

static void write_table(const char *text) { write_bytes(text, strlen(text)); }

static const struct wrong {
    const char *text, *message;
    enum target_kind kind;
} wrong[] = {
    {"\n\n", TABLE ": is empty", 0},
    {" \r\n\t\r\n", TABLE ": is empty", 0},
    {"path,label\n", TABLE ": has a header, but no images", 0},
    {"a.png,cat\nb.png,dog\n",
     TABLE ":1: no column of paths ('path', 'file' or 'image', or data.columns=image:NAME); the header has "
     "'a.png', 'cat'", 0},
    {"label\ncat\n", TABLE ":1: no column of paths", 0},
    {"path\na.png\n",
     TABLE ":1: no column of labels ('label', 'labels', 'value', columns of 0 and 1, or "
     "data.columns=label:NAME); the header has 'path'", 0},
    {",path,breed\n0,a.png,pug\n", TABLE ":1: no column of labels", 0},
    {"path,group\na.png,1\n", TABLE ":1: no column of labels", 0},
    {"path,label\na.png\n", TABLE ":2: 1 field, where the header has 2", 0},
    {"path,label\na.png,cat\n\nb.png,dog,1\n", TABLE ":4: 3 fields, where the header has 2", 0},
    {"path,label\na.png,cat,\n", TABLE ":2: 3 fields, where the header has 2", 0},
    {"path,label\n,cat\n", TABLE ":2: column 'path' is empty", 0},
    {"path,label\na.png,\n", TABLE ":2: column 'label' is empty", 0},
    {"path,label\na.png,\"\"\n", TABLE ":2: column 'label' is empty", 0},
    {"path,label\n\"a.png,cat\nb.png,dog\n", TABLE ":2: a quotation mark is not closed", 0},
    {"path,label\na.png,\"cat\"s\n", TABLE ":2: there is more behind a closing quotation mark", 0},
    {"path,label\na.png,c\"at\n", TABLE ":2: a quotation mark inside a field without quotation marks", 0},
    {"path,label\r\na.png,c\rat\r\n", TABLE ":2: there is a CR inside the line", 0},
    {"path,label\ra.png,cat\r", TABLE ": its lines end in CR alone; save it with LF or CR LF", 0},
    {"path,label\na.png,cat\nb.png,dog\na.png,cat\n", TABLE ":4: 'a.png' is already in line 2", 0},
    {"path,label\n\n\"a.png\",cat\n b.png , dog\nc.png,\"do\ng\"\nb.png,cat\n",
     TABLE ":7: 'b.png' is already in line 4", 0},
    {"pth,label\na.png,cat\n", TABLE ":1: no column of paths", 0},
    {"path,label,label\na.png,cat,cat\n", TABLE ":1: two columns are named 'label'", 0},
    {"path,label,\na.png,cat,1\n", TABLE ":1: column 3 has no name", 0},
    {"path,file,label\na.png,a.png,cat\n",
     TABLE ":1: two columns of paths: 'path' and 'file'; data.columns=image:NAME says which one it is", 0},
    {"path,label,class\na.png,cat,cat\n",
     TABLE ":1: two columns of labels: 'label' and 'class'; data.columns=label:NAME says which one it is", 0},
    {"path,label,value\na.png,cat,1\n",
     TABLE ":1: more than one of the columns 'label', 'labels' and 'value'", 0},
    {"path,label,labels\na.png,cat,cat\n", TABLE ":1: more than one of the columns", 0},
    {"path,cat,dog\na.png,1,0\nb.png,1,yes\n",
     TABLE ":3: column 'dog': 'yes' is neither 0 nor 1, as labels in columns of their own are", 0},
    {"path,cat,dog\na.png,1,\nb.png,0,1\n", TABLE ":2: column 'dog': '' is neither 0 nor 1", 0},
    {"path,cat,dog\na.png,-1,1\nb.png,0,1\n", TABLE ":2: column 'cat': '-1' is neither 0 nor 1", 0},
    {"path,cat,dog\na.png,10,1\nb.png,0,1\n", TABLE ":2: column 'cat': '10' is neither 0 nor 1", 0},
    {"path,cat,dog\na.png,x,2\n", TABLE ":1: no column of labels", 0},
    {"path,value\na.png,x\n", TABLE ":2: column 'value': ", 0},
    {"path,value\na.png,\n", TABLE ":2: column 'value': ", 0},
    {"path,value\na.png,nan\n", TABLE ":2: column 'value': ", 0},
    {"path,value\na.png,1e39\n", TABLE ":2: column 'value': ", 0},
    {"path,value\na.png,\"1,5\"\n", TABLE ":2: column 'value': ", 0},
    {"path,labels\na.png,cat;;dog\n", TABLE ":2: column 'labels': a label is empty", 0},
    {"path,labels\na.png,cat;\n", TABLE ":2: column 'labels': a label is empty", 0},
    {"path,label\ni0.png,a\n./i0.png,b\n", TABLE ":3: './i0.png' is already in line 2", 0},
    {"path,label\na/i0.png,a\nb.png,b\n.//a/././/i0.png,b\n", TABLE ":4: './/a/././/i0.png' is already in "
     "line 2", 0},
    {"path,label\n//a.png,a\n/./a.png,b\n", TABLE ":3: '/./a.png' is already in line 2", 0},
    {"path,value\na.png,1.5e30\n", TABLE ":2: column 'value': must be between -1e+30 and 1e+30, not 1.5e30", 0},
    {"path,value\na.png,-1.5e30\n", TABLE ":2: column 'value': must be between -1e+30 and 1e+30", 0},
    {"path,label\nhttp://x.org/a.png,cat\n",
     TABLE ":2: 'http://x.org/a.png' is an address; images are read from files", 0},
    {"path,label\na.png,cat\n", TABLE ":1: no column 'value' for data.task = regress", TARGET_NUMBER},
    {"path,value\na.png,1\n", TABLE ":1: a column 'value' is for data.task = regress", TARGET_CLASS},
    {"path,value\na.png,1\n", TABLE ":1: a column 'value' is for data.task = regress", TARGET_LABELS},
    {"path,labels\na.png,cat\nb.png,cat;dog\n",
     TABLE ":3: the image has 2 labels, not one, as data.task = classify needs", TARGET_CLASS},
    {"path,cat,dog\na.png,1,0\nb.png,0,0\n", TABLE ":3: the image has 0 labels, not one", TARGET_CLASS},
};

static void expect_refused(const char *message, enum target_kind kind)
{
    struct csv_table table;
    struct caught caught;
    caught_begin(&caught);
    enum status status = csv_table_read(TABLE, kind, NULL, &table);
    caught_end(&caught);
    bool said = caught_has(&caught, message);
    int errors = caught.errors;
    text_free(&caught.words);
    if (status == OK) csv_table_free(&table);
    assert_int_equal(status, BAD_DATA);
    assert_true(said && errors == 1);
}

static void wrong_tables_are_refused_with_their_line(void **state)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_table(wrong[i].text);
        expect_refused(wrong[i].message, wrong[i].kind);
    }
}

static void wrong_files_are_refused(void **state)
{
    unlink(TABLE);
    expect_refused(TABLE ": No such file or directory", TARGET_ANY);
    write_table("");
    expect_refused(TABLE ": is empty", TARGET_ANY);
    write_bytes("path,label\na.png,c\0t\n", 21);
    expect_refused(TABLE ":2: it has a byte of value 0, so it is no text", TARGET_ANY);
    write_bytes("path,label\na.png,\"c\0t\"\n", 23);
    expect_refused(TABLE ":2: it has a byte of value 0, so it is no text", TARGET_ANY);
    write_bytes("\xff\xfep\0a\0t\0h\0", 10);
    expect_refused(TABLE ": is UTF-16; save it as UTF-8", TARGET_ANY);
    unlink(TABLE);
    assert_int_equal(mkdir(TABLE, 0700), 0);
    expect_refused(TABLE ": is a folder; name the table in it", TARGET_ANY);
    assert_int_equal(rmdir(TABLE), 0);
}

static struct csv_table read_table(const char *text, enum target_kind kind)
{
    struct csv_table table;
    write_table(text);
    assert_int_equal(csv_table_read(TABLE, kind, NULL, &table), OK);
    return table;
}

/* "a.png=0 b.png=1,2": every image with its labels. */
static void expect_table(const char *text, enum target_kind kind, const char *want)
{
    struct csv_table table = read_table(text, kind);
    struct text got = {0};
    for (int i = 0; i < table.classes; i++) text_add(&got, "%s%s", i ? "," : "", table.names[i]);
    for (int64_t i = 0; i < table.count; i++) {
        text_add(&got, " %s=", table.paths[i]);
        if (table.kind == TARGET_NUMBER) {
            text_add(&got, "%.15g", table.numbers[i]);
            continue;
        }
        int64_t begin = table.begins ? table.begins[i] : i, end = table.begins ? table.begins[i + 1] : i + 1;
        for (int64_t k = begin; k < end; k++) text_add(&got, "%s%d", k > begin ? "," : "", table.labels[k]);
    }
    csv_table_free(&table);
    if (strcmp(got.data, want) != 0) fail_msg("%s\nis\n%s\nnot\n%s", text, got.data, want);
    text_free(&got);
}

static void labels_are_classes_in_bytewise_order(void **state)
{
    expect_table("path,label\nb.png,dog\na.png,cat\nc.png,dog\n", TARGET_ANY,
                 "cat,dog b.png=1 a.png=0 c.png=1");
    expect_table("image,class\nb.png,10\na.png,9\n", TARGET_CLASS, "10,9 b.png=0 a.png=1");
    expect_table("Label,File\ncat,a.png", TARGET_ANY, "cat a.png=0");
    expect_table("path,label\nb.png,dog\na.png,cat\n", TARGET_LABELS, "cat,dog b.png=1 a.png=0");
}

static void any_usual_way_of_writing_is_read(void **state)
{
    expect_table("\xef\xbb\xbfpath,label\r\na.png,cat\r\n", TARGET_ANY, "cat a.png=0");
    expect_table("path\tlabel\na b.png\tcat, or dog\n", TARGET_ANY, "cat, or dog a b.png=0");
    expect_table("path;label\na.png;cat\n", TARGET_ANY, "cat a.png=0");
    expect_table("path , label \n  a.png ,  cat\t\n\n\n", TARGET_ANY, "cat a.png=0");
    expect_table("\"path\",\"label\"\n\"a, \"\"b\"\".png\" , \"c\nat\"\n", TARGET_ANY,
                 "c\nat a, \"b\".png=0");
    expect_table("path,label\n/x/a.png,cat\n../b.png,cat", TARGET_ANY, "cat /x/a.png=0 ../b.png=0");
}

static void sets_and_columns_are_labels(void **state)
{
    expect_table("path,labels\na.png,dog; cat\nb.png,\nc.png,cat;cat\n", TARGET_ANY,
                 "cat,dog a.png=1,0 b.png= c.png=0");
    expect_table("path\tzebra\tape\na.png\t1\t0\nb.png\t1\t1\nc.png\t0\t0\n", TARGET_ANY,
                 "zebra,ape a.png=0 b.png=0,1 c.png=");
    expect_table("path,zebra,ape\na.png,1,0\nb.png,0,1\n", TARGET_CLASS, "zebra,ape a.png=0 b.png=1");
    expect_table("path,labels\na.png,dog\nb.png,cat\n", TARGET_CLASS, "cat,dog a.png=1 b.png=0");
}

static void values_are_numbers(void **state)
{
    expect_table("path,value\na.png,-1.5\nb.png, 2e3 \n", TARGET_ANY, "value a.png=-1.5 b.png=2000");
    expect_table("path,target\na.png,0\n", TARGET_NUMBER, "target a.png=0");
}

/* Numbers that floats do not tell apart, and the largest ones: normalised, they are told apart. */
static void values_are_exact(void **state)
{
    expect_table("path,value\na.png,100000000\nb.png,100000001\nc.png,100000002\n", TARGET_ANY,
                 "value a.png=100000000 b.png=100000001 c.png=100000002");
    expect_table("path,value\na.png,-1e30\nb.png,1e30\n", TARGET_ANY, "value a.png=-1e+30 b.png=1e+30");
}

/* A hundred thousand labels in a cell, each of them twice: an instant, and each counts once. */
static void many_labels_in_a_cell(void **state)
{
    enum { LABELS = 100000 };
    struct text text = {0};
    text_add(&text, "path,labels\n");
    for (int image = 0; image < 2; image++) {
        text_add(&text, "%d.png,", image);
        for (int i = 0; i < 2 * LABELS; i++) text_add(&text, "%sl%d", i ? ";" : "", i % LABELS);
        text_add(&text, "\n");
    }
    clock_t began = clock();
    struct csv_table table = read_table(text.data, TARGET_ANY);
    assert_true(clock() - began < 10 * CLOCKS_PER_SEC);
    assert_true(table.classes == LABELS && table.begins[1] == LABELS && table.begins[2] == 2 * LABELS);
    csv_table_free(&table);
    text_free(&text);
}

/* Validation images may have none of the labels, whether these are names or columns; training images not. */
static void labels_of_which_none_is_set(void **state)
{
    static const char *const tables[] = {"path,labels\n" TABLE ",\n", "path,a,b\n" TABLE ",0,0\n"};
    struct dataset_options options = {.path = TABLE, .class_names = (char *[]){"a", "b"}, .class_count = 2,
                                      .target = TARGET_LABELS};
    struct dataset dataset;
    float labels[2] = {1, 1};
    for (int i = 0; i < 2; i++) {
        write_table(tables[i]);
        assert_int_equal(dataset_open(format_find("csv"), &options, &dataset), OK);
        assert_int_equal(dataset.classes, 2);
        dataset.format->labels(&dataset, 0, labels);
        assert_true(labels[0] == 0 && labels[1] == 0);
        dataset_close(&dataset);
    }
    struct caught caught;
    write_table(tables[0]);
    options.class_names = NULL;
    caught_begin(&caught);
    enum status status = dataset_open(format_find("csv"), &options, &dataset);
    caught_end(&caught);
    assert_int_equal(status, BAD_DATA);
    assert_true(caught_has(&caught, TABLE ": no image has a label"));
    text_free(&caught.words);
}

static void groups_are_told_apart(void **state)
{
    struct csv_table table = read_table("path,label,group\na,x,p1\nb,x,p2\nc,x,p1\nd,x,\n", TARGET_ANY);
    assert_true(table.groups[0] == table.groups[2] && table.groups[0] != table.groups[1]);
    assert_true(table.groups[0] && table.groups[1] && table.groups[3] == 0);
    csv_table_free(&table);
}

/* ---- Tables as people have them ---- */

/* "LEFT|..." as expect_table, of a file of any name, with data.columns. */
static void expect_columns(const char *file, const char *text, const char *columns, const char *want)
{
    struct csv_table table;
    write_file(file, text, strlen(text));
    assert_int_equal(csv_table_read(file, TARGET_ANY, columns, &table), OK);
    struct text got = {0};
    text_add(&got, "%s|%s:", table.left_out ? table.left_out : "", table.kind == TARGET_LABELS ? "labels" : "");
    for (int64_t i = 0; i < table.count; i++) {
        int64_t begin = table.begins ? table.begins[i] : i, end = table.begins ? table.begins[i + 1] : i + 1;
        text_add(&got, " %s=", table.paths[i]);
        if (table.kind == TARGET_NUMBER) text_add(&got, "%g", table.numbers[i]);
        for (int64_t k = begin; table.labels && k < end; k++)
            text_add(&got, "%s%s", k > begin ? "+" : "", table.names[table.labels[k]]);
    }
    csv_table_free(&table);
    assert_string_equal(got.data, want);
    text_free(&got);
    unlink(file);
}

static void other_columns_are_left_out(void **state)
{
    expect_columns(TABLE, ",path,label,age\n0,a,cat,3\n1,b,dog,4\n", NULL, "'age'|: a=cat b=dog");
    expect_columns(TABLE, "Unnamed: 0,path,cat,dog,age\n0,a,1,0,31\n1,b,1,1,1\n2,c,0,0,40\n", NULL,
                   "'age'|labels: a=cat b=cat+dog c=");
    expect_columns(TABLE, "path,cat,dog,site\na,1.0,False,x\nb,0.0,True,y\n", NULL, "'site'|labels: a=cat b=dog");
    expect_columns(TABLE, "path,label\na,cat\n", NULL, "|: a=cat");
}

static void columns_are_named(void **state)
{
    expect_columns(TABLE, "id_code,diagnosis\na,0\nb,4\n", "image:id_code,label:diagnosis", "|: a=0 b=4");
    expect_columns(TABLE, "path,label,breed\na,1,pug\nb,1,cat\n", "label:breed", "|: a=pug b=cat");
    expect_columns(TABLE, "path,age,label\na,3,x\nb,4.5,x\n", " value: age", "|: a=3 b=4.5");
    expect_columns(TABLE, "id,a,b,c\nx,1,0,1\ny,0,1,1\n", "image:id,labels:a,labels:b", "|labels: x=a y=b");
    expect_columns(TABLE, "id,tags\nx,a;b\ny,\n", "image:id,labels:tags", "|labels: x=a+b y=");
    expect_columns(TABLE, "id,\"a,b\"\nx,p\n", "image:id,\"label:a,b\"", "|: x=p");
    expect_columns(TABLE, "id,cat,path,age\nx,1,q,7\ny,0,r,8\n", "image:id", "'age'|labels: x=cat y=");
}

static void expect_wrong_columns(const char *columns, enum status want, const char *message)
{
    struct csv_table table;
    struct caught caught;
    write_table("id,kind,kind2\na,x,1\n");
    caught_begin(&caught);
    enum status status = csv_table_read(TABLE, TARGET_ANY, columns, &table);
    caught_end(&caught);
    bool said = caught_has(&caught, message);
    text_free(&caught.words);
    assert_int_equal(status, want);
    assert_true(said);
}

static void wrong_names_of_columns_are_refused(void **state)
{
    expect_wrong_columns("image:id,label:kin", BAD_DATA, TABLE ":1: data.columns: there is no column kin; the header "
                         "has 'id', 'kind', 'kind2'");
    expect_wrong_columns("image:id,lable:kind", USAGE, "data.columns: 'lable' is not ROLE:COLUMN");
    expect_wrong_columns("image:id,kind", USAGE, "data.columns: 'kind' is not ROLE:COLUMN");
    expect_wrong_columns("image:id,", USAGE, "data.columns: '' is not ROLE:COLUMN");
    expect_wrong_columns("\"image:id", USAGE, "data.columns: '\"image:id' is no list of ROLE:COLUMN");
    expect_wrong_columns("label:kind", BAD_DATA, TABLE ":1: no column of paths");
    expect_wrong_columns("image:id,label:kind,value:kind2", BAD_DATA, TABLE ":1: more than one of the columns");
    expect_wrong_columns("image:id,labels:kind,labels:kind2", BAD_DATA, TABLE ":2: column 'kind': 'x' is neither 0");
}

static void json_is_a_table(void **state)
{
    expect_columns("t.jsonl", "{\"file_name\": \"a\", \"label\": \"cat\", \"n\": 1}\n\n"
                   "{\"label\": \"do\\\"g\", \"file_name\": \"b\", \"more\": {}}\n", NULL, "'n'|: a=cat b=do\"g");
    expect_columns("t.jsonl", "{\"image\":\"a\",\"labels\":[\"x\",\"y\"]}\n{\"image\":\"b\",\"labels\":null}", NULL,
                   "|labels: a=x+y b=");
    expect_columns("t.ndjson", "{\"id\":7,\"v\":0.5}\n{\"id\":8,\"v\":true}\n", "image:id,value:v", "|: 7=0.5 8=1");
    const char *images = "{\"images\":[{\"id\":1,\"file_name\":\"a\"},{\"id\":5,\"file_name\":\"b\"}],"
                         "\"categories\":[{\"id\":3,\"name\":\"cat\"},{\"id\":4,\"name\":\"dog\"}],\"annotations\":[";
    char *one = text_format("%s{\"image_id\":5,\"category_id\":4},{\"image_id\":1,\"category_id\":3}]}", images);
    expect_columns("t.json", one, NULL, "|: a=cat b=dog");
    free(one);
    one = text_format("%s{\"image_id\":5,\"category_id\":4},{\"image_id\":5,\"category_id\":3},"
                      "{\"image_id\":5,\"category_id\":4}]}", images);
    expect_columns("t.json", one, NULL, "|labels: a= b=dog+cat");
    free(one);
}

static void wrong_json_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *file, *text, *message;
    } cases[] = {
        {"t.jsonl", "", "t.jsonl: is empty"},
        {"t.jsonl", "{\"image\":\"a\",\"label\":\"x\"}\n\n{\"image\":\"b\",\"label\":}\n", "t.jsonl:3: unexpected token"},
        {"t.jsonl", "{\"image\":\"a\",\"label\":\"x\"}\n[1]\n", "t.jsonl:2: is no object"},
        {"t.jsonl", "{\"image\":\"a\",\"label\":\"x\"}\n{\"image\":\"b\"}\n", "t.jsonl:2: column 'label' is empty"},
        {"t.jsonl", "{\"image\":\"a\",\"label\":{}}\n", "t.jsonl:1: the value of \"label\" is neither a text"},
        {"t.jsonl", "{\"image\":\"a\",\"labels\":[\"x;y\"]}\n", "t.jsonl:1: the value of \"labels\""},
        {"t.jsonl", "{\"image\":\"a\",\"label\":1}\n{\"image\":\"a\",\"label\":1}\n", "t.jsonl:2: 'a' is already in line 1"},
        {"t.jsonl", "{\"a\":1,\"label\":\"x\"}\n", "t.jsonl:1: no column of paths"},
        {"t.json", "{\"images\":[]", "t.json: line 1: "},
        {"t.json", "[1,2]", "t.json: has no list of images"},
        {"t.json", "{\"images\":[{\"id\":1}]}", "t.json: images[0] has no id or file_name"},
        {"t.json", "{\"images\":[{\"id\":1,\"file_name\":\"a\"}],\"annotations\":[{\"image_id\":1,\"category_id\":2}]}",
         "t.json: annotations[0] has no image_id, or no known category_id"},
        {"t.json", "{\"images\":[],\"categories\":[{\"id\":1}]}", "t.json: categories[0] has no id"},
        {"t.json", "{\"images\":[{\"id\":1,\"file_name\":\"a\"},{\"id\":2,\"file_name\":\"a\"}]}",
         "t.json: images[1]: 'a' is there twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct csv_table table;
        struct caught caught;
        write_file(cases[i].file, cases[i].text, strlen(cases[i].text));
        caught_begin(&caught);
        enum status status = csv_table_read(cases[i].file, TARGET_ANY, NULL, &table);
        caught_end(&caught);
        bool said = caught_has(&caught, cases[i].message);
        text_free(&caught.words);
        unlink(cases[i].file);
        assert_int_equal(status, BAD_DATA);
        assert_true(said);
    }
}

/* A name gets the extension unless it has an image's; a root is where all of them begin. */
static void names_become_files(void **state)
{
    static const char *const want[] = {"there/a.b.jpg", "there/c.PNG", "/d.jpg"};
    struct dataset_options options = {.path = TABLE, .table = {"image:id,label:l", "jpg", "there"}};
    struct dataset dataset;
    struct caught caught;
    write_table("id,l\na.b,x\nc.PNG,y\n/d,y\n");
    assert_int_equal(mkdir("there", 0700), 0);
    write_file("there/a.b.jpg", "", 0);
    caught_begin(&caught);
    enum status status = dataset_open(format_find("csv"), &options, &dataset);
    caught_end(&caught);
    bool said = caught_has(&caught, TABLE ":3: there/c.PNG: No such file or directory; 2 of 3 files are missing");
    text_free(&caught.words);
    assert_int_equal(status, OK);
    assert_true(said);
    for (int i = 0; i < 3; i++) {
        char *path = dataset_image_path(&dataset, i);
        assert_string_equal(path, want[i]);
        free(path);
    }
    assert_string_equal(dataset.format->image_name(&dataset, 0), "a.b");
    dataset_close(&dataset);
    unlink("there/a.b.jpg");
    rmdir("there");
}

/* More than what the arrays begin with, and lines that are wrong far behind. */
static void long_tables_are_read(void **state)
{
    enum { ROWS = 60000 };
    struct text text = {0};
    text_add(&text, "path,label\n");
    for (int i = 0; i < ROWS; i++) text_add(&text, "images/%d.png,class %d\n", i, i % 1000);
    struct csv_table table = read_table(text.data, TARGET_ANY);
    assert_true(table.count == ROWS && table.classes == 1000);
    assert_string_equal(table.paths[ROWS - 1], "images/59999.png");
    assert_string_equal(table.names[table.labels[ROWS - 1]], "class 999");
    csv_table_free(&table);
    text_add(&text, "images/7.png,class 7\n");
    write_table(text.data);
    expect_refused(TABLE ":60002: 'images/7.png' is already in line 9", TARGET_ANY);
    text_free(&text);
}

/* ---- Random tables ---- */

enum { ROWS_MOST = 9, CELLS = 5 };
static const char *const words[] = {
    "cat", "dog", "Dog", "a b", "\"quoted\"", "x,y", "tab\there", "two\nlines", "\xc3\xa9t\xc3\xa9", "0", "-",
    "=1+1", "'",
};
#define WORD(random, most) words[random_below(random, most)]
enum { WORDS = sizeof words / sizeof *words };

struct drawn {
    enum target_kind kind;
    bool flags, group;
    int first;                   /* the column that is written first; those before it are the last ones */
    int columns, rows, lines[ROWS_MOST];
    char separator, *cells[1 + ROWS_MOST][CELLS];    /* path, then labels, then perhaps the group */
};

static char *draw_labels(struct random *random)
{
    struct text cell = {0};
    text_add(&cell, "%s", "");
    for (int left = (int)random_below(random, 4); left > 0; left--)
        text_add(&cell, "%s%s", cell.length ? random_below(random, 2) ? "; " : ";" : "", WORD(random, WORDS));
    return cell.data;
}

static char *draw_cell(struct random *random, const struct drawn *drawn)
{
    if (drawn->flags) return text_format("%d", random_below(random, 2));
    if (drawn->kind == TARGET_CLASS) return text_copy(WORD(random, WORDS));
    if (drawn->kind == TARGET_LABELS) return draw_labels(random);
    return text_format("%.9g", random_between(random, -1e6, 1e6));
}

static void draw(struct random *random, struct drawn *drawn)
{
    static const char *const paths[] = {"path", "File", "image", "filename"};
    static const char *const targets[][2] = {[TARGET_CLASS] = {"label", "Class"},
                                             [TARGET_LABELS] = {"labels", "classes"},
                                             [TARGET_NUMBER] = {"value", "target"}};
    static const enum target_kind kinds[] = {TARGET_CLASS, TARGET_LABELS, TARGET_NUMBER, TARGET_LABELS};
    uint32_t kind = random_below(random, 4);
    *drawn = (struct drawn){.kind = kinds[kind], .flags = kind == 3,
                            .rows = 1 + (int)random_below(random, ROWS_MOST),
                            .separator = ",\t;"[random_below(random, 3)]};
    drawn->group = !drawn->flags && random_below(random, 2);
    drawn->columns = drawn->flags ? 2 + (int)random_below(random, CELLS - 1) : 2 + drawn->group;
    drawn->cells[0][0] = text_copy(paths[random_below(random, 4)]);
    for (int k = 1; k < drawn->columns; k++)
        drawn->cells[0][k] = drawn->flags ? text_format("class %d", 9 - k)
                             : k == 1     ? text_copy(targets[drawn->kind][random_below(random, 2)])
                                          : text_copy("group");
    for (int i = 1; i <= drawn->rows; i++) {
        drawn->cells[i][0] = text_format("%d%s.png", i, WORD(random, WORDS));
        drawn->cells[i][1] = draw_cell(random, drawn);
        for (int k = 2; k < drawn->columns; k++)
            drawn->cells[i][k] = drawn->flags ? draw_cell(random, drawn) : text_copy(WORD(random, 3));
    }
}

static void add_cell(struct text *out, const char *cell, char separator, struct random *random)
{
    const char special[] = {separator, '"', '\n', 0};
    bool quoted = strpbrk(cell, special) || strchr(" \t", *cell) || random_below(random, 4) == 0;
    if (!quoted) {
        const char *before = random_below(random, 5) ? "" : " ", *behind = random_below(random, 5) ? "" : "  ";
        text_add(out, "%s%s%s", before, cell, behind);
        return;
    }
    text_add(out, "\"");
    for (; *cell; cell++) text_add(out, *cell == '"' ? "\"\"" : "%c", *cell);
    text_add(out, "\"");
}

/* Notes the line of each record. */
static char *written(struct drawn *drawn, struct random *random)
{
    struct text out = {0};
    int line = 1;
    drawn->first = (int)random_below(random, (uint32_t)drawn->columns);
    const char *end = random_below(random, 2) ? "\n" : "\r\n";
    text_add(&out, "%s", random_below(random, 4) ? "" : "\xef\xbb\xbf");
    for (int i = 0; i <= drawn->rows; i++) {
        for (; i > 0 && random_below(random, 8) == 0; line++) text_add(&out, "%s", end);
        if (i > 0) drawn->lines[i - 1] = line;
        for (int k = 0; k < drawn->columns; k++) {
            const char *cell = drawn->cells[i][(drawn->first + k) % drawn->columns];
            if (k) text_add(&out, "%c", drawn->separator);
            add_cell(&out, cell, drawn->separator, random);
            for (; *cell; cell++) line += *cell == '\n';
        }
        if (i < drawn->rows || random_below(random, 2)) text_add(&out, "%s", end);
        line++;
    }
    return out.data;
}

/* The labels of an image, each once, in the order of its cell. */
static char *labels_of(const struct drawn *drawn, int row)
{
    struct text out = {0};
    text_add(&out, "|");
    if (drawn->kind == TARGET_CLASS) text_add(&out, "%s|", drawn->cells[row][1]);
    for (int k = 0; drawn->flags && k < drawn->columns; k++) {
        int column = (drawn->first + k) % drawn->columns;
        if (column > 0 && *drawn->cells[row][column] == '1') text_add(&out, "%s|", drawn->cells[0][column]);
    }
    char *copy = text_copy(drawn->cells[row][1]), *rest = copy, *word;
    while (drawn->kind == TARGET_LABELS && !drawn->flags && (word = strsep(&rest, ";"))) {
        char *one = text_format("|%s|", word + strspn(word, " "));
        if (*copy && !strstr(out.data, one)) text_add(&out, "%s", one + 1);
        free(one);
    }
    free(copy);
    return out.data;
}

static void expect_drawn(const struct drawn *drawn, const char *text)
{
    struct csv_table table = read_table(text, TARGET_ANY);
    assert_int_equal(table.kind, drawn->kind);
    assert_int_equal(table.count, drawn->rows);
    assert_int_equal(table.groups != NULL, drawn->group);
    for (int i = 0; i < drawn->rows; i++) {
        assert_string_equal(table.paths[i], drawn->cells[i + 1][0]);
        assert_int_equal(csv_table_line(&table, i), drawn->lines[i]);
        for (int k = 0; drawn->group && k < i; k++)
            assert_int_equal(table.groups[i] == table.groups[k],
                             strcmp(drawn->cells[i + 1][2], drawn->cells[k + 1][2]) == 0);
        if (table.kind == TARGET_NUMBER) {
            assert_true(table.numbers[i] == strtod(drawn->cells[i + 1][1], NULL));
            continue;
        }
        struct text got = {0};
        char *want = labels_of(drawn, i + 1);
        int64_t begin = table.begins ? table.begins[i] : i, end = table.begins ? table.begins[i + 1] : i + 1;
        text_add(&got, "|");
        for (int64_t k = begin; k < end; k++) text_add(&got, "%s|", table.names[table.labels[k]]);
        assert_string_equal(got.data, want);
        text_free(&got);
        free(want);
    }
    for (int i = 1; table.kind != TARGET_NUMBER && !drawn->flags && i < table.classes; i++)
        assert_true(strcmp(table.names[i - 1], table.names[i]) < 0);
    csv_table_free(&table);
}

/* Puts one mistake into the table; returns what must be said of it, behind the line, and the record: 0 is the
 * header. */
static const char *spoil(struct drawn *drawn, struct random *random, int *record)
{
    int row = *record = 1 + (int)random_below(random, (uint32_t)drawn->rows), column = drawn->columns - 1;
    uint32_t mistake = random_below(random, 5);
    char **cells = drawn->cells[row];
    if (mistake == 0) {
        free(cells[0]);
        cells[0] = text_copy("");
        return "is empty";
    }
    if (mistake == 1 && row > 1) {
        free(cells[0]);
        cells[0] = text_format("./%s", drawn->cells[1][0]);
        return "is already in line";
    }
    if (mistake == 2 && drawn->kind != TARGET_LABELS) {
        free(cells[1]);
        cells[1] = text_copy("");
        return "column '";
    }
    if (mistake == 3 && drawn->flags && drawn->rows > 1) {
        free(cells[column]);
        cells[column] = text_copy("2");
        return "is neither 0 nor 1";
    }
    *record = 0;
    free(drawn->cells[0][column]);
    drawn->cells[0][column] = text_copy(drawn->cells[0][0]);
    return "two columns are named";
}

static void random_tables(void **state)
{
    struct random random = random_open(46, PURPOSE_TEST, 0, 0);
    for (int round = 0; round < 1500; round++) {
        struct drawn drawn;
        draw(&random, &drawn);
        char *text = written(&drawn, &random);
        expect_drawn(&drawn, text);
        free(text);
        int record;
        const char *why = spoil(&drawn, &random, &record);
        text = written(&drawn, &random);
        char *where = text_format(TABLE ":%d: ", record ? drawn.lines[record - 1] : 1);
        write_table(text);
        expect_refused(where, TARGET_ANY);
        expect_refused(why, TARGET_ANY);
        free(where);
        free(text);
        for (int i = 0; i <= drawn.rows; i++)
            for (int k = 0; k < drawn.columns; k++) free(drawn.cells[i][k]);
    }
}

static int enter(void **state)
{
    *state = case_folder();
    return chdir(*state);
}

static int leave(void **state)
{
    int left = chdir("/");
    case_remove(*state);
    return left;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_tables_are_refused_with_their_line),
        cmocka_unit_test(wrong_files_are_refused),
        cmocka_unit_test(labels_are_classes_in_bytewise_order), cmocka_unit_test(random_tables),
        cmocka_unit_test(any_usual_way_of_writing_is_read),
        cmocka_unit_test(sets_and_columns_are_labels),
        cmocka_unit_test(values_are_numbers),
        cmocka_unit_test(values_are_exact),
        cmocka_unit_test(many_labels_in_a_cell),
        cmocka_unit_test(labels_of_which_none_is_set),
        cmocka_unit_test(groups_are_told_apart),
        cmocka_unit_test(long_tables_are_read),
        cmocka_unit_test(other_columns_are_left_out),
        cmocka_unit_test(columns_are_named),
        cmocka_unit_test(wrong_names_of_columns_are_refused),
        cmocka_unit_test(json_is_a_table),
        cmocka_unit_test(wrong_json_is_refused_with_its_line),
        cmocka_unit_test(names_become_files),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
