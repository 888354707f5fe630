# report.awk: unreached coverage.info: how much of host code the tests run, folder by folder, and whether the
# lines that they do not run are those that `unreached` names. Fails if one is not.

function trimmed(text) { gsub(/^[ \t]+|[ \t]+$/, "", text); return text }

# unreached: "== REASON", then entries, "FILE FUNCTION: SOURCE LINE", or "FILE FUNCTION" alone for one that is
# never called. Neither changes when lines move.
FILENAME != ARGV[2] {
    if (/^== /) reason = substr($0, 4)
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
    taken[file SUBSEP part[1] SUBSEP part[2] SUBSEP part[3]] += part[4] == "-" ? 0 : part[4]
}

function folder_of(name) { sub(/\/[^\/]*$/, "", name); return name }

# Goes through `name`'s source along with its counts.
function look(name,    number, text, within, where, line) {
    where = folder_of(name)
    while ((getline text < (source "/" name)) > 0) {
        number++
        if ((name, number) in begins) within = begins[name, number]
        line = name " " within ": " trimmed(text)
        exists[line] = exists[name " " within] = 1
        if (!((name, number) in run)) continue
        all[where]++
        if (run[name, number] > 0) { reached[where]++; continue }
        if (!(line in excuse) && called[name, within] == 0) line = name " " within
        if (line in excuse) { excused[where]++; used[line] = 1 }
        else strange[++strangers] = name ":" number ": " line
    }
    close(source "/" name)
}

function row(name, lines, lines_run, with_reason, ways, ways_taken) {
    printf "%-12s %7d %8.1f %% %10d %9d %8.1f %%\n", name, lines, 100 * lines_run / lines, with_reason, ways,
        100 * ways_taken / (ways ? ways : 1)
}

END {
    for (name in known) look(name)
    for (key in taken) {
        split(key, part, SUBSEP)
        branches[folder_of(part[1])]++
        if (taken[key] > 0) branches_taken[folder_of(part[1])]++
    }
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
    for (line in excuse) {
        if (line in used) continue
        print "unreached has " (line in exists ? "what was run: " : "what is not there: ") line
        if (!(line in exists)) failed = 1
    }
    exit failed || strangers > 0
}
