# report.awk: unreached coverage.info: how much of host code the tests run, folder by folder, and whether the
# lines that they do not run are those that `unreached` names. Fails if one is not; so it does for branches of
# what is `strict`, if fewer than STRICT_LEAST % of one's ways are taken, or one that is not is not named.

BEGIN {
    strict = "^(alloc|src/(comm|format|checkpoint))/|^data/dataset/dataset_identity"
    strict_count = split("alloc src/comm src/format src/checkpoint data/dataset/dataset_identity*", strict_names, " ")
    STRICT_LEAST = 97; ALL_LEAST = 85
}

function trimmed(text) { gsub(/^[ \t]+|[ \t]+$/, "", text); return text }

# unreached: "== REASON", then entries, "FILE FUNCTION: SOURCE LINE", or "FILE FUNCTION" alone for one that is
# never called. Neither changes when lines move. After "=? REASON" are lines that are run, but not every way.
FILENAME != ARGV[2] {
    if (/^=[=?] /) { reason = substr($0, 4); ways = /^=\?/ }
    else if (reason && $0 && ways) one_way[$0] = reason
    else if (reason && $0) excuse[$0] = reason
    next
}

# coverage.info: lcov's format, geninfo(1). Only host code counts: what lies in these folders.
/^SF:/ {
    file = substr($0, 4)
    if (index(file, source "/") == 1) file = substr(file, length(source) + 2)
    counts = file ~ /^(alloc|amp|conf|data|kernels|src)\//
    if (counts) known[file] = 1
}
!counts { next }
/^FN:/ {
    split(substr($0, 4), part, ",")
    # The compiler's own functions, of parallel loops, begin within those that were written.
    if (part[2] !~ /\./) begins[file, part[1] + 0] = part[2]
}
/^FNDA:/ { split(substr($0, 6), part, ","); called[file, part[2]] += part[1] }
/^DA:/ {
    split(substr($0, 4), part, ",")
    run[file, part[1] + 0] += part[2]
}
/^BRDA:/ {
    split(substr($0, 6), part, ",")
    way = file SUBSEP part[1] SUBSEP part[2] SUBSEP part[3]
    if (!(way in taken)) ways_of[file, part[1] + 0] = ways_of[file, part[1] + 0] " " part[2] SUBSEP part[3]
    taken[way] += part[4] == "-" ? 0 : part[4]
}

function strict_name(name) { return name ~ /^data/ ? "data/dataset/dataset_identity*" : folder_of(name) }
function folder_of(name) { sub(/\/[^\/]*$/, "", name); return name }

# because() is false, so that each "|| because(...)" of a statement has a way that cannot be; and jansson's
# macros ask for NULL, which no member of an array or object is.
function impossible_ways(text, number,    statement) {
    while (number in text) {
        statement = statement text[number]
        if (text[number++] ~ /[;{]$/) break
    }
    return gsub(/\|\|[ ]*because(_of|_errno)?\(/, "", statement) + gsub(/json_is_[a-z]+\(/, "", statement)
}

# The branches of a line. `named`: it is not run, for a reason.
function look_at_ways(name, text, number, line, named,    where, list, count, i, missing, impossible) {
    where = folder_of(name)
    count = split(ways_of[name, number], list, " ")
    for (i = 1; i <= count; i++) missing += !(taken[name, number, list[i]] > 0)
    if (missing) impossible = impossible_ways(text, number)
    if (impossible > missing) impossible = missing
    count -= impossible
    missing -= impossible
    if (named) {
        count -= missing
        missing = 0
    }
    branches[where] += count
    branches_taken[where] += count - missing
    if (name ~ strict) {
        strict_ways[strict_name(name)] += count
        strict_missing[strict_name(name)] += missing
    }
    if (!missing) return
    if (line in one_way) used[line] = 1
    else if (name ~ strict) strange[++strangers] = name ":" number ": not every way: " line
}

# Goes through `name`'s source along with its counts.
function look(name,    lines, number, text, within, where, line) {
    where = folder_of(name)
    while ((getline line < (source "/" name)) > 0) text[++lines] = line
    close(source "/" name)
    for (number = 1; number <= lines; number++) {
        if ((name, number) in begins) within = begins[name, number]
        line = name " " within ": " trimmed(text[number])
        exists[line] = exists[name " " within] = 1
        if (!((name, number) in run)) continue
        all[where]++
        if (run[name, number] > 0) {
            reached[where]++
            look_at_ways(name, text, number, line, 0)
            continue
        }
        if (!(line in excuse) && called[name, within] == 0) line = name " " within
        look_at_ways(name, text, number, line, line in excuse)
        if (line in excuse) { excused[where]++; used[line] = 1 }
        else strange[++strangers] = name ":" number ": " line
    }
}

function row(name, lines, lines_run, with_reason, ways, ways_taken) {
    printf "%-12s %7d %8.1f %% %10d %9d %8.1f %%\n", name, lines, 100 * lines_run / lines, with_reason, ways,
        100 * ways_taken / (ways ? ways : 1)
}

function tell_unused(line, why) {
    if (line in used) return
    print "unreached has " (line in exists ? why : "what is not there: ") line
    if (!(line in exists)) failed = 1
}

function require(what, ways, ways_taken, least,    share) {
    share = 100 * ways_taken / (ways ? ways : 1)
    printf "branches of %s: %.1f %% taken, at least %d wanted\n", what, share, least
    if (share < least) failed = 1
}

END {
    for (name in known) look(name)
    printf "%-12s %7s %10s %10s %9s %10s\n", "folder", "lines", "run", "excused", "branches", "taken"
    for (where in all) {
        for (i = ++folders; i > 1 && folder[i - 1] > where; i--) folder[i] = folder[i - 1]
        folder[i] = where
        total += all[where]
        total_run += reached[where]
        total_excused += excused[where]
        total_branches += branches[where]
        total_taken += branches_taken[where]
    }
    for (i = 1; i <= folders; i++)
        row(folder[i], all[folder[i]], reached[folder[i]], excused[folder[i]], branches[folder[i]],
            branches_taken[folder[i]])
    row("all", total, total_run, total_excused, total_branches, total_taken)
    for (i = 1; i <= strangers; i++) print "not run, and without a reason: " strange[i]
    for (line in excuse) tell_unused(line, "what was run: ")
    for (line in one_way) tell_unused(line, "what went every way: ")
    for (i = 1; i <= strict_count; i++) {
        name = strict_names[i]
        require(name, strict_ways[name], strict_ways[name] - strict_missing[name], STRICT_LEAST)
    }
    require("all folders", total_branches, total_taken, ALL_LEAST)
    exit failed || strangers > 0
}
